"""The newest record of each key, against a dictionary."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.columnar import (
    DecodeOptions,
    NewestByKey,
    decode_to_arrow,
    newest,
    schema,
    table_to_arrow,
)
from barnabas.protocol.records.columnar.segments import Selection, iter_tables
from barnabas.protocol.records.compression import CompressionType

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"ab", b"key-3"]), st.binary(max_size=3))
VALUES = st.one_of(st.none(), st.binary(max_size=40))
HEADERS = st.lists(st.tuples(st.sampled_from(["h", "é"]), st.one_of(st.none(), st.binary(max_size=4))), max_size=2)
RECORDS = st.lists(st.tuples(KEYS, VALUES, HEADERS), min_size=1, max_size=12)
BATCHES = st.lists(st.tuples(RECORDS, st.sampled_from([CompressionType.NONE, CompressionType.LZ4])), max_size=25)

OPTIONS = DecodeOptions("t", 3)


def newest_of(buffers: list[bytes], *, tombstones: bool) -> tuple[pa.Table, NewestByKey]:
    """The rows that NewestByKey yields for buffers of batches."""
    found = NewestByKey((1, 2), tombstones=tombstones)
    for buffer in buffers:
        for table in iter_tables([buffer], Selection()):
            found.add(table)
    parts = [part for table in found.tables() for part in table_to_arrow(table, OPTIONS)]
    return pa.Table.from_batches(parts, schema=schema(OPTIONS.columns)), found


@settings(max_examples=150, deadline=None)
@given(batches=BATCHES, tombstones=st.booleans(), block_bytes=st.sampled_from([16, 100, 1 << 20]))
def test_newest_records_are_those_of_a_dictionary(
    batches: list[tuple[list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]], CompressionType]],
    tombstones: bool,
    block_bytes: int,
) -> None:
    offsets = count()
    buffers, expected, keyless = [], {}, 0
    for records, codec in batches:
        base = next(offsets)
        offsets = count(base + len(records))
        made = [SimpleRecord(key, value, 1000 + i, tuple(heads)) for i, (key, value, heads) in enumerate(records)]
        buffers.append(bytes(build_batch(made, base_offset=base, codec=codec)))
        for i, (key, _, _) in enumerate(records):
            keyless += key is None
            if key is not None:
                expected[key] = base + i
    everything = decode_to_arrow(buffers, OPTIONS)
    wanted = everything.take(sorted(expected.values())) if expected else everything.slice(0, 0)
    if not tombstones:
        wanted = wanted.filter(wanted["value"].is_valid())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest, "_BLOCK_BYTES", block_bytes)
        rows, found = newest_of(buffers, tombstones=tombstones)
    assert rows.to_pylist() == wanted.to_pylist()
    assert found.keyless == keyless


def test_memory_follows_the_keys_and_not_the_log() -> None:
    found = NewestByKey((3, 4), tombstones=False)
    largest = 0
    for turn in range(200):
        records = [SimpleRecord(b"%d" % (i % 50), b"%d" % turn * 2000, 1000) for i in range(60)]
        buffer = bytes(build_batch(records, base_offset=turn * 60))
        for table in iter_tables([buffer], Selection()):
            found.add(table)
        largest = max(largest, found.blocks_bytes)
    live = 50 * 6000
    assert largest < 2 * live + newest._BLOCK_BYTES
    assert sum(len(table) for table in found.tables()) == 50


def test_index_grows_with_the_keys() -> None:
    keys = [b"k%d" % i for i in range(20_000)]
    buffers = [
        bytes(build_batch([SimpleRecord(key, b"1", 0) for key in keys[at : at + 500]], base_offset=at))
        for at in range(0, len(keys), 500)
    ]
    rows, _ = newest_of(buffers, tombstones=True)
    assert rows["key"].to_pylist() == keys
