import type { DescEnum } from "@bufbuild/protobuf";

/** Name of an enum's value without the enum's prefix; undefined for one that a newer server has and we do not. */
export function enumName(schema: DescEnum, value: number): string | undefined {
  return schema.value[value]?.name.slice((schema.sharedPrefix ?? "").length).toUpperCase();
}
