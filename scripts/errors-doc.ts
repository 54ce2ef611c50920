// Writes docs/errors.md from the reasons of the domain and the comments of the contracts; with --check it only says
// whether what is there is what it would write.
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { REASONS, type Reason } from "@runmesh/domain/errors";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FILE = "docs/errors.md";

/** gRPC's number and the HTTP status that Connect answers with. */
const CODES: Readonly<Record<(typeof REASONS)[Reason]["code"], readonly [number, number]>> = {
  canceled: [1, 499],
  invalid_argument: [3, 400],
  not_found: [5, 404],
  already_exists: [6, 409],
  permission_denied: [7, 403],
  resource_exhausted: [8, 429],
  failed_precondition: [9, 400],
  unimplemented: [12, 501],
  internal: [13, 500],
  unavailable: [14, 503],
  unauthenticated: [16, 401],
};

/** What any method may answer. */
const ANYWHERE: readonly Reason[] = [
  "UNAUTHENTICATED",
  "FORBIDDEN",
  "UNAVAILABLE",
  "OVERLOADED",
  "INTERNAL",
  "CANCELLED",
  "INVALID_FIELD",
];

const text = writeDoc();
if (process.argv.includes("--check")) {
  if (readFileSync(join(ROOT, FILE), "utf8") !== text) {
    console.error(`${FILE} is stale: npm run generate`);
    process.exitCode = 1;
  }
} else {
  writeFileSync(join(ROOT, FILE), text);
}

function writeDoc(): string {
  const comments = readReasonComments();
  const methods = readMethods();
  const reasons = Object.keys(REASONS) as Reason[];
  const rows = reasons.map((reason) => {
    const { code } = REASONS[reason];
    const [number, status] = CODES[code];
    return `| \`${reason}\` | \`${code}\` (${number}, ${status}) | ${comments.get(reason)} |`;
  });
  const advice = reasons.map((reason) => `- \`${reason}\`: ${REASONS[reason].advice}`);
  const named = [...methods].map(
    ([method, found]) => `- \`${method}\`: ${found.map((name) => `\`${name}\``).join(", ")}`,
  );
  return `<!-- Written by scripts/errors-doc.ts from services/internal/domain/src/errors.ts and proto/: npm run generate -->

# Errors

Every refusal has a reason from a closed list. It travels as \`runmesh.error.v1.ErrorDetail\`, a detail of the error, over
Connect, gRPC and gRPC-Web alike: the reason, each wrong field with its path, the advice, how long to wait where that is
known, and the request id that finds the call in the logs. Items of a batch carry the same message in their result. Switch
on the reason, never on the message.

| reason | code (gRPC, HTTP) | when |
|---|---|---|
${rows.join("\n")}

## What to do

The \`advice\` of each:

${advice.join("\n")}

## Which methods name which

Any method may answer ${ANYWHERE.map((reason) => `\`${reason}\``).join(", ")}.
Beside these, as the comments of the contracts say:

${named.join("\n")}

## Failed attempts

An attempt's error has a type: the \`name\` of what the handler threw, or one that RunMesh gives: \`WORKER_LOST\` (the lease
ran out, and more often than \`max_lost\` where the task is DEAD of it), \`SCHEDULE_TO_START_TIMEOUT\`,
\`START_TO_CLOSE_TIMEOUT\` and \`HEARTBEAT_TIMEOUT\` (the SDK's \`startTimeout\`, \`timeout\` and \`heartbeatTimeout\`),
\`UNRESOLVED_REFERENCE\` (params refer to what is not there). The SDK gives \`INVALID_PAYLOAD\`, \`INVALID_FIELD\` and
\`TOO_LARGE\` to input or output that its schema refuses, that is not JSON, or that is over 256 KiB; these are not tried
again.
`;
}

/** The comment above each value of the enum, as one line. */
function readReasonComments(): Map<string, string> {
  const proto = readFileSync(join(ROOT, "proto/runmesh/error/v1/error.proto"), "utf8");
  const found = proto.matchAll(/((?:^ {2}\/\/ .*\n)+) {2}REASON_([A-Z_]+) = \d+;/gm);
  return new Map([...found].map((match) => [match[2]!, readComment(match[1]!)]));
}

/** The reasons that the comment above each method names, by service and method. */
function readMethods(): Map<string, string[]> {
  const methods = new Map<string, string[]>();
  for (const file of globSync("proto/runmesh/*/v1/*_service.proto", { cwd: ROOT }).sort()) {
    const proto = readFileSync(join(ROOT, file), "utf8");
    const service = /^service (\w+)/m.exec(proto)![1]!;
    for (const match of proto.matchAll(/((?:^ {2}\/\/ .*\n)+) {2}rpc (\w+)/gm)) {
      const words = new Set(readComment(match[1]!).match(/[A-Z_]{5,}/g));
      const reasons = (Object.keys(REASONS) as Reason[]).filter(
        (reason) => words.has(reason) && !ANYWHERE.includes(reason),
      );
      if (reasons.length > 0) methods.set(`${service}/${match[2]}`, reasons);
    }
  }
  return methods;
}

function readComment(lines: string): string {
  return lines
    .replaceAll(/^ *\/\/ /gm, "")
    .trim()
    .replaceAll("\n", " ");
}
