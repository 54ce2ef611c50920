import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Schedule_Overlap } from "@runmesh/contracts/schedule/v1/schedule_pb";
import { InvalidArgumentError } from "commander";
import { findOverlap, OVERLAP_NAMES } from "./schedule-view.ts";

export function readOverlap(text: string): Schedule_Overlap {
  const overlap = findOverlap(text.toLowerCase());
  if (overlap !== undefined) return overlap;
  throw new InvalidArgumentError(`It must be one of ${OVERLAP_NAMES.join(", ")}.`);
}

/** A date, or a time with its zone: without one it would be read in the zone of whoever types it. */
export function readInstant(text: string): Timestamp {
  const ms = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/.test(text)
    ? Date.parse(text)
    : Number.NaN;
  if (!Number.isNaN(ms)) return timestampFromMs(ms);
  throw new InvalidArgumentError("A time is given as 2026-03-01 (its midnight in UTC) or 2026-03-01T06:00:00+01:00.");
}
