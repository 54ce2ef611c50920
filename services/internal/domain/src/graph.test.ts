import fc from "fast-check";
import { expect, test } from "vitest";
import { findCycle, GraphBuilder, neighbours, sortByDependencies } from "./graph.ts";

function givenGraph(dependencies: readonly (readonly number[])[]) {
  const builder = new GraphBuilder(dependencies.length);
  for (const each of dependencies) {
    builder.nextTask();
    for (const dependency of each) builder.add(dependency);
  }
  return builder.build();
}

const anyDependencies = fc
  .integer({ min: 1, max: 15 })
  .chain((count) => fc.array(fc.array(fc.nat(count - 1), { maxLength: 3 }), { minLength: count, maxLength: count }));

test("edges are the same from both ends, and none is there twice", () => {
  fc.assert(
    fc.property(anyDependencies, (dependencies) => {
      const graph = givenGraph(dependencies);

      const expected = dependencies.map((each) => [...new Set(each)]);
      expect(expected.map((_, task) => [...neighbours(graph.dependencies, task)])).toEqual(expected);
      const reversed = expected.map((_, task) =>
        expected.flatMap((each, other) => (each.includes(task) ? [other] : [])),
      );
      expect(expected.map((_, task) => [...neighbours(graph.dependents, task)])).toEqual(reversed);
      expect(graph.edgeCount).toBe(expected.flat().length);
    }),
  );
});

test("a circle is found exactly where sorting leaves tasks out, and it is one", () => {
  fc.assert(
    fc.property(anyDependencies, (dependencies) => {
      const graph = givenGraph(dependencies);

      const order = sortByDependencies(graph);

      for (const [place, task] of order.entries()) {
        for (const dependency of dependencies[task]!) expect(order.subarray(0, place)).toContain(dependency);
      }
      const seen = new Set<number>();
      const isCyclic = (task: number, above: number[]): boolean => {
        if (above.includes(task)) return true;
        if (seen.has(task)) return false;
        seen.add(task);
        return dependencies[task]!.some((dependency) => isCyclic(dependency, [...above, task]));
      };
      expect(order.length < dependencies.length).toBe(dependencies.some((_, task) => isCyclic(task, [])));
      if (order.length === dependencies.length) return;
      const cycle = findCycle(graph, order);
      expect(new Set(cycle).size).toBe(cycle.length);
      for (const [place, task] of cycle.entries()) {
        expect(dependencies[task]).toContain(cycle[(place + 1) % cycle.length]);
      }
    }),
    { numRuns: 300 },
  );
});
