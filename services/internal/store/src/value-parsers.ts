import pg from "pg";

const INT8 = 20;
const INT8_ARRAY = 1016;

/**
 * How results are read: int8 and its arrays as `bigint`, since a `number` would lose the last digits of an id. What is
 * not named here is read as pg does it: timestamptz as `Date`, bytea as `Buffer`, numeric as text.
 */
export const valueParsers = new pg.TypeOverrides();
valueParsers.setTypeParser(INT8, BigInt);
valueParsers.setTypeParser(INT8_ARRAY, readInt8Array);

/** Reads `{1,2,NULL}`. The arrays of this schema have one dimension. */
function readInt8Array(text: string): (bigint | null)[] {
  if (text === "{}") return [];
  return text
    .slice(1, -1)
    .split(",")
    .map((element) => (element === "NULL" ? null : BigInt(element)));
}
