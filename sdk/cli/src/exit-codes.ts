/** What the command's end means to a script. Documented in `runmesh --help` and docs/cli.md. */
export const EXIT = {
  DONE: 0,
  /** The run did not succeed, or `doctor` found an error. */
  RUN_FAILED: 1,
  WRONG_USAGE: 2,
  NOT_REACHABLE: 3,
  REFUSED: 4,
  /** A bug of the command itself, as in sysexits.h. */
  FAULT: 70,
  /** Ctrl-C, as shells count it: 128 + SIGINT. */
  INTERRUPTED: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

export const EXIT_HELP = `
Exit codes:
  0    done
  1    the run failed (any end but SUCCEEDED), or doctor found an error
  2    wrong usage: an option, an argument, or a file that cannot be read
  3    not reachable: nobody answers at the URL, or the database is away
  4    refused: the mesh says no, with a reason
  70   a fault of runmesh itself
  130  interrupted by Ctrl-C
`;
