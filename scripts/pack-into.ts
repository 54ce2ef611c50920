/** `npm run packages -- FOLDER` packs what people install into a folder, made where it is missing. */
import { mkdirSync } from "node:fs";
import { basename, resolve } from "node:path";
import { packPackages } from "./pack.ts";

const [folder] = process.argv.slice(2);
if (folder === undefined) {
  console.error("npm run packages -- FOLDER");
  process.exit(2);
}
// npm runs this in the repository, and says where it was called.
const destination = resolve(process.env.INIT_CWD ?? ".", folder);
mkdirSync(destination, { recursive: true });
for (const { file } of packPackages(destination)) console.log(basename(file));
