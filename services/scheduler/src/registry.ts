import { createHash } from "node:crypto";
import type { Definition } from "@runmesh/domain/definition";
import { MeshError } from "@runmesh/domain/errors";
import { canonicalJson } from "@runmesh/domain/json-text";
import { buildPlan } from "@runmesh/domain/plan";
import { MAX_INT4 } from "@runmesh/platform/int4";
import type { Principal } from "@runmesh/platform/principal";
import { insertAudit } from "@runmesh/store/audit";
import type { Db } from "@runmesh/store/db";
import { type DefinitionRow, findDefinition, findDefinitionByHash, insertDefinition } from "@runmesh/store/definitions";
import { useDefinition } from "@runmesh/store/unused-definitions";
import { internWorkflow, lockWorkflow, setLatestVersion } from "@runmesh/store/workflows";
import { LRUCache } from "lru-cache";

/** Keeps definitions by their content: the same content again is the same version. */
export class Registry {
  readonly #db: Db;
  /** By content, which never changes. */
  readonly #known = new LRUCache<string, DefinitionRow>({ max: 10_000 });

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * Registers a checked definition, or finds it. An inline one gets no version, is kept apart, and is audited by the
   * runs that it starts.
   */
  async register(
    tenantId: number,
    definition: Definition,
    inline: boolean,
    by?: Principal,
  ): Promise<{ row: DefinitionRow; created: boolean }> {
    const hash = hashDefinition(definition);
    const known = await findDefinitionByHash(this.#db, { tenantId, hash, inline });
    if (known !== undefined && (!known.is_stale || (await useDefinition(this.#db, { tenantId, id: known.id })))) {
      return { row: known, created: false };
    }
    const edgeCount = buildPlan(definition).edgeCount;
    return this.#db.transaction(async (tx) => {
      const { id: workflowId } = await internWorkflow(tx, { tenantId, name: definition.name });
      // The name's lock orders its versions; whoever had it before may have registered the same content.
      const { latest_version } = await lockWorkflow(tx, { tenantId, workflowId });
      const twin = await findDefinitionByHash(tx, { tenantId, hash, inline });
      if (twin !== undefined) return { row: twin, created: false };
      const version = inline ? 0 : latest_version + 1;
      const inserted = await insertDefinition(tx, {
        tenantId,
        workflowId,
        version,
        hash,
        inline,
        body: Buffer.from(JSON.stringify(definition)),
        taskCount: definition.tasks.length,
        edgeCount,
      });
      if (inserted === undefined) throw new Error(`a definition was inserted without the lock of ${definition.name}`);
      if (!inline) await setLatestVersion(tx, { tenantId, workflowId, version });
      if (by !== undefined) {
        const target = `workflow/${definition.name}@${version}`;
        const { name: principal, origin } = by;
        await insertAudit(tx, { tenantId, principal, origin, action: "workflow.register", target, result: "done" });
      }
      const row: DefinitionRow = {
        ...inserted,
        workflow_id: workflowId,
        workflow: definition.name,
        version,
        content_hash: hash,
        task_count: definition.tasks.length,
        edge_count: edgeCount,
      };
      return { row, created: true };
    });
  }

  /** The version of a registered workflow; 0 means the newest. Throws NOT_FOUND. */
  async getVersion(tenantId: number, workflow: string, version: number): Promise<DefinitionRow> {
    const row = version > MAX_INT4 ? undefined : await findDefinition(this.#db, { tenantId, workflow, version });
    if (row !== undefined) return row;
    throw new MeshError("NOT_FOUND", `no workflow ${workflow}${version > 0 ? ` version ${version}` : ""}`, {
      violations: [{ field: version > 0 ? "version" : "workflow", reason: "NOT_FOUND", description: "not registered" }],
    });
  }

  /** The registered version with this content. Throws NOT_FOUND. */
  async getByHash(tenantId: number, contentHash: string): Promise<DefinitionRow> {
    const key = `${tenantId}/${contentHash}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const hash = Buffer.from(contentHash, "hex");
    const row =
      hash.length === 32 ? await findDefinitionByHash(this.#db, { tenantId, hash, inline: false }) : undefined;
    if (row !== undefined) {
      this.#known.set(key, row);
      return row;
    }
    throw new MeshError("NOT_FOUND", `no workflow with content ${contentHash.slice(0, 64)}`, {
      violations: [{ field: "content_hash", reason: "NOT_FOUND", description: "not registered" }],
    });
  }
}

/** SHA-256 of the canonical definition: payloads count by what they mean, not by how they were typed. */
function hashDefinition(definition: Definition): Buffer {
  const canonical = {
    ...definition,
    output: definition.output === undefined ? undefined : canonicalJson(definition.output),
    tasks: definition.tasks.map((task) => ({
      ...task,
      params: task.params === undefined ? undefined : canonicalJson(task.params),
    })),
  };
  return createHash("sha256").update(JSON.stringify(canonical)).digest();
}
