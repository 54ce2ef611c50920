/**
 * Arrays in PostgreSQL's binary form. pg sends a `Buffer` parameter as binary, and the server skips the parsing of a
 * text array, which is a third of the cost of a wide statement. The text must cast: `$1::int8[]`.
 */
const INT2 = { oid: 21, bytes: 2 };
const INT4 = { oid: 23, bytes: 4 };
const INT8 = { oid: 20, bytes: 8 };
const UUID = { oid: 2950, bytes: 16 };
const BYTEA_OID = 17;
const TEXT_OID = 25;

/** Dimensions, a flag for NULLs, the element's type, and for the one dimension its length and lower bound. */
const HEADER_BYTES = 20;
const EMPTY_HEADER_BYTES = 12;

export function int8Array(values: readonly bigint[] | BigInt64Array): Buffer {
  const buffer = fixedWidth(INT8, values.length);
  let offset = HEADER_BYTES;
  for (const value of values) {
    offset = buffer.writeInt32BE(INT8.bytes, offset);
    offset = buffer.writeBigInt64BE(value, offset);
  }
  return buffer;
}

export function int4Array(values: readonly number[] | Int32Array): Buffer {
  const buffer = fixedWidth(INT4, values.length);
  let offset = HEADER_BYTES;
  for (const value of values) {
    offset = buffer.writeInt32BE(INT4.bytes, offset);
    offset = buffer.writeInt32BE(value, offset);
  }
  return buffer;
}

export function int2Array(values: readonly number[] | Int16Array): Buffer {
  const buffer = fixedWidth(INT2, values.length);
  let offset = HEADER_BYTES;
  for (const value of values) {
    offset = buffer.writeInt32BE(INT2.bytes, offset);
    offset = buffer.writeInt16BE(value, offset);
  }
  return buffer;
}

/** `undefined` and `null` become NULL. */
export function byteaArray(values: readonly (Uint8Array | null | undefined)[]): Buffer {
  if (values.length === 0) return emptyArray(BYTEA_OID);
  let size = HEADER_BYTES;
  let hasNull = 0;
  for (const value of values) {
    size += 4 + (value?.byteLength ?? 0);
    if (value === undefined || value === null) hasNull = 1;
  }
  const buffer = Buffer.allocUnsafe(size);
  let offset = writeHeader(buffer, BYTEA_OID, values.length, hasNull);
  for (const value of values) {
    if (value === undefined || value === null) {
      offset = buffer.writeInt32BE(-1, offset);
      continue;
    }
    offset = buffer.writeInt32BE(value.byteLength, offset);
    buffer.set(value, offset);
    offset += value.byteLength;
  }
  return buffer;
}

/** Of texts such as "123e4567-e89b-12d3-a456-426614174000". */
export function uuidArray(values: readonly string[]): Buffer {
  const buffer = fixedWidth(UUID, values.length);
  let offset = HEADER_BYTES;
  for (const value of values) {
    offset = buffer.writeInt32BE(UUID.bytes, offset);
    const written = buffer.write(value.replaceAll("-", ""), offset, "hex");
    if (written !== UUID.bytes) throw new RangeError(`not a UUID: ${value}`);
    offset += written;
  }
  return buffer;
}

/** `undefined` becomes NULL. */
export function textArray(values: readonly (string | undefined)[]): Buffer {
  if (values.length === 0) return emptyArray(TEXT_OID);
  let size = HEADER_BYTES;
  let hasNull = 0;
  for (const value of values) {
    // A UTF-16 unit takes at most three bytes of UTF-8.
    size += 4 + (value?.length ?? 0) * 3;
    if (value === undefined) hasNull = 1;
  }
  const buffer = Buffer.allocUnsafe(size);
  let offset = writeHeader(buffer, TEXT_OID, values.length, hasNull);
  for (const value of values) {
    if (value === undefined) {
      offset = buffer.writeInt32BE(-1, offset);
      continue;
    }
    const written = buffer.write(value, offset + 4, "utf8");
    buffer.writeInt32BE(written, offset);
    offset += 4 + written;
  }
  return buffer.subarray(0, offset);
}

function fixedWidth(element: { oid: number; bytes: number }, length: number): Buffer {
  if (length === 0) return emptyArray(element.oid);
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + length * (4 + element.bytes));
  writeHeader(buffer, element.oid, length, 0);
  return buffer;
}

function writeHeader(buffer: Buffer, oid: number, length: number, hasNull: number): number {
  let offset = buffer.writeInt32BE(1, 0);
  offset = buffer.writeInt32BE(hasNull, offset);
  offset = buffer.writeInt32BE(oid, offset);
  offset = buffer.writeInt32BE(length, offset);
  return buffer.writeInt32BE(1, offset);
}

function emptyArray(oid: number): Buffer {
  const buffer = Buffer.alloc(EMPTY_HEADER_BYTES);
  buffer.writeInt32BE(oid, 8);
  return buffer;
}
