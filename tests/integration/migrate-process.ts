// One of many processes that migrate the same database: prints what it applied as JSON.
import { MeshError } from "@runmesh/domain/errors";
import { migrate } from "@runmesh/store/migrate";

const [url = "", folder] = process.argv.slice(2);
try {
  const applied = await migrate({ url, ...(folder === undefined ? {} : { folder }) });
  console.log(JSON.stringify(applied));
} catch (error) {
  console.error(error instanceof MeshError ? error.reason : error);
  process.exitCode = 1;
}
