import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { provideTools } from "./services/internal/testing/src/tool-cache.ts";
import { adviseOnMissing, findMissingSuites, findNeededTools } from "./services/internal/testing/src/tools.ts";

const root = fileURLToPath(new URL(".", import.meta.url));
const WITH_SERVERS = "tests/{integration,faults,interop,e2e}/**/*.test.ts";

provideTools(findNeededTools(root, WITH_SERVERS), { install: process.env.CI === "true" });
const missing = findMissingSuites(root, WITH_SERVERS);
if (missing.length > 0) console.error(adviseOnMissing(missing));

/**
 * The sdk packages run from source: nothing is built before tests. Node gets these conditions too, for `require` as
 * well, so `import` must not be among them.
 */
const conditions = ["runmesh-source", "node", "module", "default"];

export default defineConfig({
  test: {
    // Two workers fill two cores; more of them only make timeouts likelier.
    maxWorkers: 2,
    projects: [
      {
        resolve: { conditions },
        ssr: { resolve: { conditions } },
        test: {
          name: "unit",
          include: ["{services,sdk,scripts,examples}/**/*.test.ts", "tests/*.test.ts", "tests/bench/**/*.test.ts"],
          exclude: ["**/node_modules/**", "**/dist/**", "tests/bench/peers/**"],
          testTimeout: 10_000,
        },
      },
      {
        resolve: { conditions },
        ssr: { resolve: { conditions } },
        test: {
          name: "integration",
          include: [WITH_SERVERS],
          exclude: ["**/node_modules/**", ...missing.map((suite) => suite.file)],
          globalSetup: ["services/internal/testing/src/global-setup.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
        },
      },
    ],
  },
});
