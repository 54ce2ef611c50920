import type { Log } from "@runmesh/platform/log";
import { createWakeups } from "@runmesh/platform/wakeup";
import type { Db } from "@runmesh/store/db";
import { DefinitionCache } from "@runmesh/store/definition-cache";
import type { SessionRow } from "@runmesh/store/sessions";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LinkWatch } from "./link-watch.ts";
import { Session, Sessions } from "./sessions.ts";

const GRACE_MS = 3_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A watch over a database without leases: it tells only whose leases were looked for, and what was logged. */
function setUp() {
  const recovered: bigint[] = [];
  const warned: unknown[] = [];
  const ask = async (name: string, params: readonly unknown[]) => {
    if (name === "list_endable_leases") recovered.push(params[1] as bigint);
    return [];
  };
  const db = {
    rows: (name: string, _: string, params: readonly unknown[]) => ask(name, params),
    find: async () => undefined,
  } as unknown as Db;
  const wakeups = createWakeups();
  const log = { info() {}, warn: (about: unknown) => warned.push(about) } as unknown as Log;
  const definitions = new DefinitionCache(db, () => {});
  const links = new LinkWatch({ db, definitions, sessions: new Sessions(db), wakeups, log });
  const open = (id: number): Session => {
    const session = new Session(
      1,
      "token",
      { id: BigInt(id), handlers: [], queues: [] } as unknown as SessionRow,
      "new",
    );
    links.opened(session);
    return session;
  };
  return {
    links,
    open,
    openMany: (count: number) => Array.from({ length: count }, (_, i) => open(i + 1)),
    /** Sessions whose leases were ended early, once every grace is over. */
    async recover() {
      await vi.advanceTimersByTimeAsync(GRACE_MS * 2);
      return { recovered: recovered.map(Number), warned };
    },
  };
}

test.each([
  [1, 1],
  [2, 3],
  [3, 3],
  [3, 6],
  [4, 8],
  [10, 20],
])("when %i of %i sessions break within a second, all of them are recovered early", async (count, of) => {
  const { links, openMany, recover } = setUp();
  const sessions = openMany(of);

  for (const session of sessions.slice(0, count)) links.closed(session, "broken");

  expect(await recover()).toEqual({ recovered: sessions.slice(0, count).map(({ id }) => Number(id)), warned: [] });
});

test.each([
  [4, 4],
  [4, 7],
  [11, 20],
])(
  "when %i of %i sessions break within a second, none is recovered early, and one warning says so",
  async (count, of) => {
    const { links, openMany, recover } = setUp();

    for (const session of openMany(of).slice(0, count)) {
      links.closed(session, "broken");
      vi.advanceTimersByTime(60);
    }

    expect(await recover()).toEqual({ recovered: [], warned: [{ together: count, before: of }] });
  },
);

test("a worker that is killed and started again many times within a second is recovered each time", async () => {
  const { links, open, recover } = setUp();

  for (let id = 1; id <= 8; id++) {
    links.closed(open(id), "broken");
    vi.advanceTimersByTime(100);
  }

  expect(await recover()).toEqual({ recovered: [1, 2, 3, 4, 5, 6, 7, 8], warned: [] });
});

test("links that break over more than a second are recovered early, though any two are less than that apart", async () => {
  const { links, openMany, recover } = setUp();
  const sessions = openMany(6);

  for (const session of sessions) {
    links.closed(session, "broken");
    vi.advanceTimersByTime(400);
  }

  expect(await recover()).toEqual({ recovered: [1, 2, 3, 4, 5, 6], warned: [] });
});

test("workers that left in order are no broken links, and the one that is killed among them is recovered", async () => {
  const { links, openMany, recover } = setUp();
  const sessions = openMany(6);

  for (const session of sessions.slice(0, 5)) links.closed(session, "left");
  links.closed(sessions[5]!, "broken");

  expect(await recover()).toEqual({ recovered: [1, 2, 3, 4, 5, 6], warned: [] });
});

test("streams that this server ended are not looked at again", async () => {
  const { links, openMany, recover } = setUp();

  for (const session of openMany(6)) links.closed(session, "here");

  expect(await recover()).toEqual({ recovered: [], warned: [] });
});

test("sessions that came back at once and broke again within the second are counted once", async () => {
  const { links, open, openMany, recover } = setUp();
  const sessions = openMany(8);

  for (const session of sessions.slice(0, 3)) links.closed(session, "broken");
  for (const id of [1, 2, 3]) links.closed(open(id), "broken");

  const { recovered, warned } = await recover();
  expect(new Set(recovered)).toEqual(new Set([1, 2, 3]));
  expect(warned).toEqual([]);
});
