"""Batches with chosen damage: a record is laid out field by field, a batch is sealed with a right CRC."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.records.batch import BatchHeader, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, seal, varint
from barnabas.protocol.records.compression import CompressionType, compress

SOME = [SimpleRecord(b"k%d" % i, b"value %d" % i, 1000 + i) for i in range(5)]


def record(
    offset: int = 0,
    timestamp: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    tail: bytes = b"\x00",
    *,
    length: int | None = None,
    key_length: int | None = None,
    value_length: int | None = None,
) -> bytes:
    """A record whose declared lengths may lie; `tail` is what stands where the headers belong."""
    body = b"\x00" + varint(timestamp) + varint(offset)
    for data, declared in ((key, key_length), (value, value_length)):
        actual = -1 if data is None else len(data)
        body += varint(actual if declared is None else declared) + (data or b"")
    body += tail
    return varint(len(body) if length is None else length) + body


def batch(payload: bytes, count: int, codec: CompressionType = CompressionType.NONE, **changes: Any) -> bytes:
    """A batch around `payload`, header fields as a producer's, except for `changes`."""
    plain = read_header(build_batch([SimpleRecord(b"k", b"v", 1000)]))
    header = plain._replace(last_offset_delta=count - 1, record_count=count, attributes=int(codec))._replace(**changes)
    return seal(header, compress(codec, payload))


def damaged(data: bytes, **changes: Any) -> bytes:
    """The same batch with other header fields and a CRC that fits them."""
    header: BatchHeader = read_header(data)._replace(**changes)
    return seal(header, data[61:])


MALFORMED: dict[str, tuple[bytes, int]] = {
    "count too high": (record(0), 2),
    "count too low": (record(0) + record(1), 1),
    "no records but bytes": (record(0), 0),
    "length beyond the batch": (record(0, length=60), 1),
    "length negative": (record(0, length=-1), 1),
    "length too short": (record(0, length=3), 1),
    "length too long by one": (record(0) + record(1, length=9), 2),
    "key beyond its record": (record(0, key_length=40), 1),
    "key length below -1": (record(0, key_length=-2), 1),
    "value beyond its record": (record(0, value_length=40), 1),
    "value reaches into the next record": (record(0, value_length=5) + record(1), 2),
    "value length below -1": (record(0, value_length=-2), 1),
    "no header count": (record(0, tail=b""), 1),
    "more headers than bytes": (record(0, tail=varint(50)), 1),
    "negative header count": (record(0, tail=varint(-1)), 1),
    "null header key": (record(0, tail=varint(1) + varint(-1) + varint(0)), 1),
    "header key beyond its record": (record(0, tail=varint(1) + varint(9) + b"a"), 1),
    "header value beyond its record": (record(0, tail=varint(1) + varint(1) + b"a" + varint(9)), 1),
    "header value length below -1": (record(0, tail=varint(1) + varint(1) + b"a" + varint(-5)), 1),
    "bytes after the headers": (record(0, tail=b"\x00\x00"), 1),
    "offsets repeat": (record(0) + record(0), 2),
    "offsets fall": (record(1) + record(0), 2),
    "offset beyond the batch": (record(7), 1),
    "negative offset": (record(-1), 1),
    "varint too long": (record(0)[:-1] + b"\xff\xff\xff\xff\xff\xff", 1),
    "length varint too long": (b"\x80\x80\x80\x80\x80\x80\x01" + bytes(9), 1),
    "cut in the length": (record(0) + b"\x80", 2),
    "cut in the timestamp": (varint(3) + b"\x00\x80\x80", 1),
    "empty record": (varint(0) * 7, 1),
}
"""Payloads that no reader may accept, and the record count their batch declares."""
