import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { WorkflowSchema, WorkflowVersionSchema } from "@runmesh/contracts/workflow/v1/workflow_pb";
import type { WorkflowService } from "@runmesh/contracts/workflow/v1/workflow_service_pb";
import { invalidField, MeshError } from "@runmesh/domain/errors";
import { checkTexts, readName } from "@runmesh/domain/names";
import { readPageToken, writePageToken } from "@runmesh/domain/page-token";
import { validateDefinition } from "@runmesh/domain/validate-definition";
import { readPageSize } from "@runmesh/platform/page-size";
import { getPrincipal } from "@runmesh/platform/principal";
import type { Db } from "@runmesh/store/db";
import type { DefinitionCache } from "@runmesh/store/definition-cache";
import { type DefinitionRow, listVersions } from "@runmesh/store/definitions";
import { findWorkflow, listWorkflows, type WorkflowRow } from "@runmesh/store/workflows";
import { readDefinition, writeDefinition } from "./definition-message.ts";
import type { Registry } from "./registry.ts";

interface Deps {
  readonly db: Db;
  readonly definitions: DefinitionCache;
  readonly registry: Registry;
}

export function createWorkflowService({ db, definitions, registry }: Deps): ServiceImpl<typeof WorkflowService> {
  return {
    async registerWorkflow(request, context) {
      const principal = getPrincipal(context);
      if (request.definition === undefined) throw invalidField("definition", "is missing");
      const definition = validateDefinition(readDefinition(request.definition, "definition"), "definition");
      const { row, created } = await registry.register(principal.tenantId, definition, false, principal);
      return { version: writeVersion(row), created };
    },

    async getWorkflow(request, context) {
      const { tenantId } = getPrincipal(context);
      const name = readName(request.name, "name");
      const workflow = await getWorkflow(db, tenantId, name);
      const row = await registry.getVersion(tenantId, name, request.version);
      const { definition } = await definitions.get(tenantId, row.id);
      return {
        workflow: writeWorkflow(workflow),
        version: { ...writeVersion(row), definition: writeDefinition(definition) },
      };
    },

    async listWorkflows(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [afterName = ""] = readPageToken(request.pageToken, "page_token", "text") ?? [];
      checkTexts({ name_prefix: request.namePrefix });
      const rows = await listWorkflows(db, { tenantId, prefix: request.namePrefix, afterName, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        workflows: page.map(writeWorkflow),
        nextPageToken: rows.length > limit ? writePageToken([page.at(-1)!.name]) : "",
      };
    },

    async listWorkflowVersions(request, context) {
      const { tenantId } = getPrincipal(context);
      const limit = readPageSize(request.pageSize);
      const [before = "2147483647"] = readPageToken(request.pageToken, "page_token", "int") ?? [];
      const workflow = await getWorkflow(db, tenantId, readName(request.name, "name"));
      const beforeVersion = Number(before);
      const rows = await listVersions(db, { tenantId, workflowId: workflow.id, beforeVersion, limit: limit + 1 });
      const page = rows.slice(0, limit);
      return {
        versions: page.map(writeVersion),
        nextPageToken: rows.length > limit ? writePageToken([String(page.at(-1)!.version)]) : "",
      };
    },
  };
}

async function getWorkflow(db: Db, tenantId: number, name: string): Promise<WorkflowRow> {
  const workflow = await findWorkflow(db, { tenantId, name });
  if (workflow === undefined) throw new MeshError("NOT_FOUND", `no workflow ${name}`);
  return workflow;
}

const writeWorkflow = (row: WorkflowRow) =>
  create(WorkflowSchema, {
    name: row.name,
    latestVersion: row.latest_version,
    createTime: timestampFromDate(row.created_at),
    updateTime: timestampFromDate(row.updated_at),
  });

const writeVersion = (row: DefinitionRow) =>
  create(WorkflowVersionSchema, {
    workflow: row.workflow,
    version: row.version,
    contentHash: row.content_hash.toString("hex"),
    taskCount: row.task_count,
    edgeCount: row.edge_count,
    createTime: timestampFromDate(row.created_at),
  });
