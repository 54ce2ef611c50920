import { runCommand } from "../src/run-command.ts";

export interface CliResult {
  readonly exitCode: number;
  readonly stdout: readonly string[];
  readonly stderr: readonly string[];
}

export interface CliSetting {
  readonly env?: Record<string, string>;
  readonly stdin?: string;
  readonly signal?: AbortSignal;
  /** Sees each line of result as it is printed. */
  onLine?(line: string): void;
}

/** Runs a command line in this process and catches what it prints. */
export async function runCli(words: readonly string[], setting: CliSetting = {}): Promise<CliResult> {
  const stdout: string[] = [];
  const stderr: string[] = [];
  const exitCode = await runCommand(
    words,
    {
      terminal: {
        out(line) {
          stdout.push(...line.split("\n"));
          setting.onLine?.(line);
        },
        note: (line) => void stderr.push(...line.split("\n")),
        draw: (text) => void stderr.push(text),
        isInteractive: false,
        columns: 80,
      },
      env: setting.env ?? {},
      signal: setting.signal ?? new AbortController().signal,
      readStdin: async () => new TextEncoder().encode(setting.stdin ?? ""),
    },
    "0.0.0-test",
  );
  return { exitCode, stdout, stderr };
}
