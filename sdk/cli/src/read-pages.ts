/** Largest page that the server answers. */
export const MAX_PAGE = 1_000;

export interface Page<T> {
  readonly items: readonly T[];
  readonly nextPageToken: string;
}

/** Reads pages until there are `limit` items or no more, and says where the rest begins. */
export async function readPages<T>(
  limit: number,
  pageToken: string,
  read: (pageSize: number, pageToken: string) => Promise<Page<T>>,
): Promise<Page<T>> {
  const items: T[] = [];
  let next = pageToken;
  do {
    const page = await read(Math.min(limit - items.length, MAX_PAGE), next);
    items.push(...page.items);
    next = page.nextPageToken;
  } while (next !== "" && items.length < limit);
  return { items, nextPageToken: next };
}
