/** The largest number that a column of four bytes holds; fields of requests can be larger. */
export const MAX_INT4 = 2_147_483_647;
