import type { LaneGroupRow } from "@runmesh/store/lane-groups";
import { expect, test } from "vitest";
import { chooseLaneGroups } from "./lane-share.ts";

const groups = (owners: readonly string[]): LaneGroupRow[] =>
  owners.map((owner, id) => ({ id, owner, fence: 1n, live: owner !== "" }));

const repeat = (owner: string, count: number) => Array.from({ length: count }, () => owner);

test("a relay alone takes every group", () => {
  const chosen = chooseLaneGroups(groups(repeat("", 16)), "a");

  expect(chosen.map(({ id }) => id)).toEqual(Array.from({ length: 16 }, (_, id) => id));
});

test("a newcomer takes half of the groups from the only other relay", () => {
  const chosen = chooseLaneGroups(groups(repeat("a", 16)), "b");

  expect(chosen).toHaveLength(8);
});

test("a third relay takes from both, and no more than the rounded-down share", () => {
  const all = groups([...repeat("a", 8), ...repeat("b", 8)]);

  const chosen = chooseLaneGroups(all, "c");

  const owners = chosen.map(({ id }) => all[id]!.owner);
  expect(chosen).toHaveLength(5);
  expect(new Set(owners)).toEqual(new Set(["a", "b"]));
});

test("relays with their rounded share take nothing from each other", () => {
  const all = groups([...repeat("a", 6), ...repeat("b", 5), ...repeat("c", 5)]);

  const chosen = ["a", "b", "c"].map((owner) => chooseLaneGroups(all, owner));

  expect(chosen).toEqual([[], [], []]);
});

test("groups of a relay that died are shared out up to the rounded-up share", () => {
  const all = groups([...repeat("a", 6), ...repeat("", 5), ...repeat("c", 5)]);

  const chosen = chooseLaneGroups(all, "c");

  expect(chosen.map(({ id }) => all[id]!.owner)).toEqual(["", "", ""]);
});

test("with more relays than groups one that has none takes only what is free", () => {
  const all = groups(Array.from({ length: 16 }, (_, id) => `relay-${id}`));

  expect(chooseLaneGroups(all, "late")).toEqual([]);
});

test("any number of relays that take turns come to rest with fair shares", () => {
  for (let count = 1; count <= 16; count++) {
    const all = groups(repeat("", 16));
    const relays = Array.from({ length: count }, (_, index) => `relay-${index}`);
    let moves = 0;
    for (let round = 0; round < 40; round++) {
      moves = 0;
      for (const owner of relays) {
        for (const { id } of chooseLaneGroups(all, owner)) {
          all[id] = { id, owner, fence: all[id]!.fence + 1n, live: true };
          moves++;
        }
      }
    }

    const shares = relays.map((owner) => all.filter((group) => group.owner === owner).length);
    expect(moves).toBe(0);
    expect(Math.min(...shares)).toBe(Math.floor(16 / count));
    expect(Math.max(...shares)).toBe(Math.ceil(16 / count));
  }
});
