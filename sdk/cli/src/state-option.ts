import type { DescEnum, EnumShape } from "@bufbuild/protobuf";
import { InvalidArgumentError } from "commander";
import { enumName } from "./json-shape.ts";

/** Reads "running,FAILED" as values of a State enum; given again it adds to what was there. */
export function readStates<D extends DescEnum>(desc: D) {
  const known = new Map(desc.values.filter((v) => v.number !== 0).map((v) => [enumName(desc, v.number), v.number]));
  return (text: string, before: readonly EnumShape<D>[] = []): readonly EnumShape<D>[] => [
    ...before,
    ...text.split(",").map((word) => {
      const state = known.get(word.trim().toUpperCase());
      if (state !== undefined) return state as EnumShape<D>;
      throw new InvalidArgumentError(`The states are ${[...known.keys()].join(", ")}.`);
    }),
  ];
}
