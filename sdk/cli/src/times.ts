import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampMs } from "@bufbuild/protobuf/wkt";

/** "2026-03-01 12:00:07" in UTC, or "" where there is none. */
export function formatTime(time: Timestamp | undefined): string {
  if (time === undefined) return "";
  return new Date(timestampMs(time)).toISOString().slice(0, 19).replace("T", " ");
}

/** From one time to another, or "" where either is missing. */
export function formatSpan(from: Timestamp | undefined, to: Timestamp | undefined): string {
  if (from === undefined || to === undefined) return "";
  return formatDuration(timestampMs(to) - timestampMs(from));
}

/** "840 ms", "3.4 s", "2 min 05 s", "3 h 07 min". */
export function formatDuration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.floor(ms / 1_000);
  if (seconds < 60) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${String(seconds % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}
