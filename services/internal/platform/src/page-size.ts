import { invalidField } from "@runmesh/domain/errors";

const DEFAULT_PAGE_SIZE = 100;
const MAX_PAGE_SIZE = 1_000;

/** Rows of a page: 1 to 1,000, 100 where the caller gave none. */
export function readPageSize(asked: number, field = "page_size"): number {
  if (asked > MAX_PAGE_SIZE) throw invalidField(field, `a page has at most ${MAX_PAGE_SIZE} rows`);
  return asked === 0 ? DEFAULT_PAGE_SIZE : asked;
}
