import { expect, test } from "vitest";
import {
  loadMaintenance,
  loadStandalone,
  type MaintenanceModule,
  type StandaloneModule,
} from "./standalone-package.ts";

type RealStandalone = typeof import("@runmesh/standalone/standalone");
type RealMaintenance = typeof import("@runmesh/standalone/maintenance");

test("the standalone package is what the command takes it for", { timeout: 30_000 }, async () => {
  const standalone: StandaloneModule = (await loadStandalone()) as RealStandalone;
  const maintenance: MaintenanceModule = (await loadMaintenance()) as RealMaintenance;

  expect(standalone.startStandalone).toBeTypeOf("function");
  expect(maintenance.migrate).toBeTypeOf("function");
  expect(maintenance.doctor).toBeTypeOf("function");
  expect(maintenance.bootstrapKey).toBeTypeOf("function");
  expect(maintenance.hasAdminKey).toBeTypeOf("function");
});
