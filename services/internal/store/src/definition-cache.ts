import type { Definition, TaskDefinition } from "@runmesh/domain/definition";
import { buildPlan, type Plan } from "@runmesh/domain/plan";
import { compileTemplate, type Template } from "@runmesh/domain/references";
import { LRUCache } from "lru-cache";
import type { Db } from "./db.ts";
import { type DefinitionRow, getDefinitionBody } from "./definitions.ts";
import { internRoutes, type Route } from "./routes.ts";

/** A definition with all that is derived from it once: its plan, routes, ranks and templates. */
export interface LoadedDefinition {
  readonly row: DefinitionRow;
  readonly definition: Definition;
  readonly plan: Plan;
  /** Of each task by ordinal. */
  readonly routeIds: Int32Array;
  readonly routes: readonly Route[];
  /** −2 × priority, of each task by ordinal. */
  readonly ranks: Int16Array;
  readonly output: Template;
  template(ordinal: number): Template;
}

/** Weighed in tasks, so that a few large graphs do not fill the memory. */
const MAX_TASKS = 2_000_000;

/** The definitions in use. They never change, so what is read once holds for ever. */
export class DefinitionCache {
  readonly #db: Db;
  readonly #onNewRoutes: () => void;
  readonly #loaded = new LRUCache<string, LoadedDefinition>({
    maxSize: MAX_TASKS,
    sizeCalculation: (loaded) => loaded.plan.taskCount + 10,
  });
  readonly #loading = new Map<string, Promise<LoadedDefinition>>();

  /** `onNewRoutes` is told when a definition was the first to need some route. */
  constructor(db: Db, onNewRoutes: () => void) {
    this.#db = db;
    this.#onNewRoutes = onNewRoutes;
  }

  find(tenantId: number, id: bigint): LoadedDefinition | undefined {
    return this.#loaded.get(`${tenantId}/${id}`);
  }

  async get(tenantId: number, id: bigint): Promise<LoadedDefinition> {
    const key = `${tenantId}/${id}`;
    const loaded = this.#loaded.get(key);
    if (loaded !== undefined) return loaded;
    let loading = this.#loading.get(key);
    if (loading === undefined) {
      loading = this.#load(tenantId, id).finally(() => this.#loading.delete(key));
      this.#loading.set(key, loading);
    }
    return loading;
  }

  async #load(tenantId: number, id: bigint): Promise<LoadedDefinition> {
    const found = await getDefinitionBody(this.#db, { tenantId, id });
    if (found === undefined) throw new Error(`definition ${id} of tenant ${tenantId} is gone`);
    const { body, ...row } = found;
    const definition = JSON.parse(body.toString("utf8")) as Definition;
    const loaded = await this.#derive(tenantId, row, definition);
    this.#loaded.set(`${tenantId}/${id}`, loaded);
    return loaded;
  }

  async #derive(tenantId: number, row: DefinitionRow, definition: Definition): Promise<LoadedDefinition> {
    const wanted = new Map(definition.tasks.map((task) => [routeKey(routeOf(task)), routeOf(task)]));
    const interned = await internRoutes(this.#db, { tenantId, routes: [...wanted.values()] });
    if (interned.areNew) this.#onNewRoutes();
    const byKey = new Map(interned.routes.map((route) => [routeKey(route), route]));
    const routes = definition.tasks.map((task) => byKey.get(routeKey(routeOf(task)))!);
    const templates: (Template | undefined)[] = [];
    return {
      row,
      definition,
      plan: buildPlan(definition),
      routes,
      routeIds: Int32Array.from(routes, (route) => route.id),
      ranks: Int16Array.from(definition.tasks, (task) => -2 * task.priority),
      output: compileTemplate(definition.output),
      template(ordinal) {
        let template = templates[ordinal];
        if (template === undefined) templates[ordinal] = template = compileTemplate(definition.tasks[ordinal]!.params);
        return template;
      },
    };
  }
}

const routeOf = (task: TaskDefinition): Omit<Route, "id"> => ({
  queue: task.queue,
  handler: task.handler,
  requires: task.requires.join(" "),
  ...task.timeouts,
  exclusive: task.exclusive,
});

const routeKey = (r: Omit<Route, "id">): string =>
  [r.queue, r.handler, r.requires, r.scheduleToStartMs, r.startToCloseMs, r.heartbeatMs, r.exclusive].join("\n");
