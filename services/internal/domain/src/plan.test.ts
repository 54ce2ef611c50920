import fc from "fast-check";
import { expect, test } from "vitest";
import { anyGraph, givenDefinition } from "../testing/given-graph.ts";
import { neighbours } from "./graph.ts";
import { buildPlan } from "./plan.ts";
import { validateDefinition } from "./validate-definition.ts";

test("references imply dependencies, and one that is listed too counts once", () => {
  const refer = (key: string) => ({ $ref: `#/tasks/${key}/output/x` });
  const definition = validateDefinition({
    name: "order",
    tasks: [
      { key: "ship", handler: "h", dependsOn: ["eu/pay"], params: JSON.stringify([refer("eu~1pay"), refer("pack")]) },
      { key: "eu/pay", handler: "h", params: '{"$ref":"#/input"}' },
      { key: "pack", handler: "h" },
    ],
  });

  const plan = buildPlan(structuredClone(definition));

  expect(plan).toEqual(expect.objectContaining({ ...buildPlan(definition), isFastPath: expect.any(Function) }));
  expect(plan).toMatchObject({ taskCount: 3, edgeCount: 2, keys: ["ship", "eu/pay", "pack"], roots: [1, 2] });
  expect([...neighbours(plan.dependencies, 0)]).toEqual([1, 2]);
  expect([...plan.initialPending]).toEqual([2, 0, 0]);
  expect(plan.ordinalOf.get("pack")).toBe(2);
});

test("a definition that was stored is planned as the one that was validated", () => {
  fc.assert(
    fc.property(anyGraph(), (spec) => {
      const definition = givenDefinition(spec);
      const { isFastPath: _ahead, ...ahead } = buildPlan(definition);
      const { isFastPath: _stored, ...stored } = buildPlan(structuredClone(definition));

      expect(stored).toEqual(ahead);
    }),
  );
});

test("a plan agrees with a naive reading of the definition", () => {
  fc.assert(
    fc.property(anyGraph(), (spec) => {
      const plan = buildPlan(givenDefinition(spec));

      expect([...plan.initialPending]).toEqual(spec.tasks.map((task) => task.dependsOn.length));
      expect(plan.roots).toEqual([...spec.tasks.keys()].filter((each) => spec.tasks[each]!.dependsOn.length === 0));
      for (const [ordinal, task] of spec.tasks.entries()) {
        expect([...neighbours(plan.dependencies, ordinal)].sort()).toEqual([...task.dependsOn].sort());
        const waiting = spec.tasks.filter((each) => each.dependsOn.includes(ordinal));
        expect(neighbours(plan.dependents, ordinal)).toHaveLength(waiting.length);
        expect(plan.isFastPath(ordinal)).toBe(waiting.every((each) => each.when !== "any_failed"));
        for (const dependency of task.dependsOn) {
          expect(plan.order.indexOf(dependency)).toBeLessThan(plan.order.indexOf(ordinal));
        }
      }
    }),
  );
});
