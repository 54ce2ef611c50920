import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import { invalidField } from "@runmesh/domain/errors";

/** The years 1 to 9999, which is what a Timestamp is defined to hold. */
const FIRST_SECOND = -62_135_596_800n;
const LAST_SECOND = 253_402_300_799n;
const NANOS_A_SECOND = 1_000_000_000;

/** The instant in milliseconds. In binary a Timestamp can hold what it must not: throws INVALID_FIELD then. */
export function readTimestampMs(timestamp: Timestamp, field: string): number {
  if (isValidTimestamp(timestamp)) return timestampMs(timestamp);
  throw invalidField(field, "must lie in the years 1 to 9999, with 0 to 999,999,999 nanoseconds");
}

/** The instant, where there is one. */
export const readTimestamp = (timestamp: Timestamp | undefined, field: string): Date | undefined =>
  timestamp && new Date(readTimestampMs(timestamp, field));

export const isValidTimestamp = ({ seconds, nanos }: Timestamp): boolean =>
  seconds >= FIRST_SECOND && seconds <= LAST_SECOND && nanos >= 0 && nanos < NANOS_A_SECOND;
