/** JSON in which a number is its source text (`JSON.rawJSON`), so that 9007199254740993 and 1e400 keep each digit. */
export type LosslessJson = null | boolean | string | RawNumber | LosslessJson[] | { [key: string]: LosslessJson };

export interface RawNumber {
  readonly rawJSON: string;
}

/** The part of the language that TypeScript's library does not declare yet ("JSON.parse source text access"). */
const lossless = JSON as unknown as {
  parse(text: string, reviver: (key: string, value: unknown, context: { source: string }) => unknown): unknown;
  rawJSON(text: string): RawNumber;
  isRawJSON(value: unknown): value is RawNumber;
};

/** Throws SyntaxError where the text is no JSON, RangeError where it is nested too deep for any use. */
export function parseLossless(text: string): LosslessJson {
  return lossless.parse(text, (_key, value, context) =>
    typeof value === "number" ? lossless.rawJSON(context.source) : value,
  ) as LosslessJson;
}

/** A plain JSON object, and neither an array nor a number. */
export function isObject(value: LosslessJson | undefined): value is { [key: string]: LosslessJson } {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !lossless.isRawJSON(value);
}
