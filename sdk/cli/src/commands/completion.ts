import { Argument, type Command } from "commander";
import { SHELLS, type Shell, writeCompletion } from "../completion.ts";
import type { Host } from "../host.ts";

export function addCompletion(program: Command, host: Host): void {
  program
    .command("completion")
    .addArgument(new Argument("<shell>", "whose completion").choices(SHELLS))
    .description('print what completes this command in a shell, as in: eval "$(runmesh completion bash)"')
    .action((shell: Shell) => {
      for (const line of writeCompletion(program, shell)) host.terminal.out(line);
    });
}
