import type { Progress } from "./progress.ts";

export interface Moved {
  readonly movedCount: number;
  readonly passedOverCount: number;
}

/** Small enough that a page is done well within a call's time, also where the mesh is busy. */
const PAGE = 50;

/** Asks for page after page of a move until the walk is over, and answers the sums. */
export async function walkPages(
  progress: Progress,
  done: string,
  move: (pageSize: number, pageToken: string) => Promise<Moved & { readonly nextPageToken: string }>,
): Promise<Moved> {
  let [movedCount, passedOverCount, pageToken] = [0, 0, ""];
  do {
    const page = await move(PAGE, pageToken);
    movedCount += page.movedCount;
    passedOverCount += page.passedOverCount;
    pageToken = page.nextPageToken;
    progress.update(`${movedCount} ${done}`);
  } while (pageToken !== "");
  progress.clear();
  return { movedCount, passedOverCount };
}

export function formatMoved({ movedCount, passedOverCount }: Moved, noun: string, done: string): string {
  const others = passedOverCount === 0 ? "" : `, ${passedOverCount} passed over: others had moved them`;
  return `${movedCount} ${noun}${movedCount === 1 ? "" : "s"} ${done}${others}`;
}
