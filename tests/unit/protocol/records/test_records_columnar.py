"""Batches to Arrow and back: the same records, the same bytes, and what must be left out."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from record_crafting import MALFORMED, SOME, batch, damaged, record

from barnabas.core.hashing import partition_for_key
from barnabas.protocol.records.batch import Record, TimestampType, check_crc, iter_batches, iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, varint
from barnabas.protocol.records.columnar import (
    COLUMNS,
    DecodeOptions,
    EncodeOptions,
    decode_to_arrow,
    encode_from_arrow,
    iter_arrow,
    partitions_for_keys,
    rows_by_partition,
    schema,
)
from barnabas.protocol.records.columnar.segments import Selection, batch_table, iter_run_tables
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.errors import CorruptBatchError, DecompressionLimitError

HEADERS = (("trace", b"abc"), ("näme✓", None), ("", b""))
MIXED = [
    SimpleRecord(
        None if i % 7 == 0 else b"key-%d" % i,
        None if i % 5 == 0 else b"v" * (i % 200),
        1_700_000_000_000 + i * 37 % 500,
        HEADERS[: i % 4],
    )
    for i in range(500)
]


def options(**changes: Any) -> DecodeOptions:
    selection = {name: changes.pop(name) for name in list(changes) if name in Selection.__slots__}
    return DecodeOptions("orders", 3, selection=Selection(**selection), **changes)


def rows(table: Any) -> list[Record]:
    """The table as records, to compare with what `iter_records` gives."""
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((h["key"], h["value"]) for h in row["headers"] or ()),
        )
        for row in table.to_pylist()
    ]


def opened(*batches: bytes) -> list[Record]:
    return [r for data in batches for r in iter_records(data, 0, read_header(data))]


def offsets(*buffers: bytes, **changes: Any) -> list[int]:
    result: list[int] = decode_to_arrow(buffers, options(columns=("offset",), **changes))["offset"].to_pylist()
    return result


def test_batches_that_inflate_much_are_read_some_megabytes_at_a_time() -> None:
    """A few kilobytes can inflate to gigabytes: many such batches must not be in memory at the same time."""
    buf = b"".join(
        build_batch([SimpleRecord(b"k", bytes(3_000_000))], base_offset=i, codec=CompressionType.ZSTD)
        for i in range(20)
    )
    batches = list(iter_batches(buf))
    seen = 0
    for some, table in iter_run_tables(buf, batches):
        assert len(table.data) < 8 * 1024 * 1024 + 3_100_000
        assert list(table.offsets) == [header.base_offset for _, header in some]
        for (pos, header), at, size in zip(some, table.value_at, table.value_len, strict=True):
            assert size == batch_table(buf, pos, header, Selection()).value_len[0] == 3_000_000
            assert not table.data[at : at + size].any()
        seen += len(some)
    assert seen == 20


@pytest.mark.parametrize("codec", list(CompressionType))
def test_the_columns_hold_what_the_records_hold(codec: CompressionType) -> None:
    one = build_batch(MIXED, base_offset=10, codec=codec)
    two = build_batch(MIXED, base_offset=2000)
    table = decode_to_arrow([one + two, one], options())
    assert rows(table) == opened(one, two, one)
    assert table.schema == schema()
    table.validate(full=True)
    assert set(table["topic"].to_pylist()) == {"orders"}
    assert set(table["partition"].to_pylist()) == {3}
    assert set(table["timestampType"].to_pylist()) == {0}


def test_log_append_time() -> None:
    data = build_batch(SOME, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=77_000)
    table = decode_to_arrow([data], options(columns=("timestamp", "timestampType")))
    assert [t.timestamp() for t in table["timestamp"].to_pylist()] == [77.0] * 5
    assert table["timestampType"].to_pylist() == [1] * 5


def test_any_columns_in_any_order() -> None:
    data = build_batch(SOME)
    table = decode_to_arrow([data], options(columns=("offset", "key")))
    assert table.to_pylist() == [{"offset": i, "key": r.key} for i, r in enumerate(SOME)]
    with pytest.raises(ValueError, match="unknown column: colour"):
        decode_to_arrow([data], options(columns=("colour",)))
    assert decode_to_arrow([], options()).schema == schema(COLUMNS)


def test_records_without_headers_have_null_as_in_sparks_source() -> None:
    records = [SimpleRecord(None, b""), SimpleRecord(None, b"", 0, (("a", None),))]
    table = decode_to_arrow([build_batch(records)], options(columns=("headers",)))
    assert table["headers"].to_pylist() == [None, [{"key": "a", "value": None}]]


def test_header_keys_that_are_not_utf8() -> None:
    data = batch(record(0, tail=varint(1) + varint(2) + b"\xff\xfe" + varint(-1)), 1)
    table = decode_to_arrow([data], options(columns=("headers",)))
    assert table["headers"].to_pylist() == [[{"key": "��", "value": None}]]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
def test_offsets_outside_the_range_are_cut(codec: CompressionType) -> None:
    data = [build_batch(SOME, base_offset=base, codec=codec) for base in (0, 5, 10)]
    assert offsets(*data, start_offset=3, end_offset=11) == list(range(3, 11))
    assert offsets(b"".join(data), start_offset=5, end_offset=10) == [5, 6, 7, 8, 9]
    assert offsets(*data, start_offset=15) == []


def test_a_partial_tail_is_left_out() -> None:
    data = build_batch(SOME) + build_batch(SOME, base_offset=5)[:-1]
    assert offsets(data) == [0, 1, 2, 3, 4]


def test_chunks_keep_to_rows_and_bytes() -> None:
    data = build_batch([SimpleRecord(None, bytes(100), 0) for _ in range(1000)])
    sizes = [len(chunk) for chunk in iter_arrow([data, data], options(rows_max=300))]
    assert sizes == [300, 300, 300, 100] * 2
    sizes = [len(chunk) for chunk in iter_arrow([data], options(bytes_max=1010))]
    assert set(sizes) == {9, 10} or set(sizes) == {10}
    assert sum(sizes) == 1000
    assert [len(c) for c in iter_arrow([data[:]], options(bytes_max=1))] == [1] * 1000


def marker(commit: bool, offset: int, producer: int = 1) -> bytes:
    return build_end_txn_marker(
        EndTxn(commit, 0), producer_id=producer, producer_epoch=0, timestamp=0, base_offset=offset
    )


def transaction(offset: int, producer: int = 1, count: int = 2) -> bytes:
    return build_batch(
        SOME[:count], base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_control_batches_are_never_records() -> None:
    assert offsets(transaction(0) + marker(True, 2) + transaction(3) + marker(False, 5)) == [0, 1, 3, 4]


def test_aborted_transactions_are_left_out() -> None:
    log = [
        transaction(0, 1), transaction(2, 2), marker(False, 4, 1), transaction(5, 1), marker(True, 7, 2),
        marker(True, 8, 1), transaction(9, 1), build_batch(SOME[:2], base_offset=11), marker(False, 13, 1),
    ]  # fmt: skip
    aborted = [(1, 9), (1, 0)]
    assert offsets(b"".join(log), aborted=aborted) == [2, 3, 5, 6, 11, 12]
    assert offsets(*log, aborted=aborted, start_offset=6) == [6, 11, 12]
    assert offsets(b"".join(log)) == [0, 1, 2, 3, 5, 6, 9, 10, 11, 12]


def test_an_idempotent_batch_is_not_aborted_with_its_producers_transaction() -> None:
    plain = build_batch(SOME[:1], base_offset=2, producer_id=1, producer_epoch=0, base_sequence=2)
    assert offsets(transaction(0), plain, marker(False, 3), aborted=[(1, 0)]) == [2]


@pytest.mark.parametrize("codec", list(CompressionType))
@pytest.mark.parametrize("name", list(MALFORMED))
def test_malformed_records_are_refused(name: str, codec: CompressionType) -> None:
    payload, count = MALFORMED[name]
    data = batch(payload, count, codec)
    with pytest.raises(CorruptBatchError):
        decode_to_arrow([data], options())


def test_emptied_batches_are_passed_over_and_negative_counts_refused() -> None:
    empty = batch(b"", 0, base_offset=5, last_offset_delta=4)
    assert offsets(build_batch(SOME) + empty + build_batch(SOME, base_offset=10)) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert offsets(damaged(empty, record_count=0)) == []
    with pytest.raises(CorruptBatchError):
        offsets(damaged(build_batch(SOME), record_count=-1))


def test_a_count_that_cannot_be_allocates_nothing() -> None:
    with pytest.raises(CorruptBatchError, match="do not fit"):
        decode_to_arrow([damaged(build_batch(SOME), record_count=2**31 - 1)], options())


def test_crcs_are_checked_unless_told_otherwise() -> None:
    data = bytearray(build_batch(SOME))
    data[-2] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        offsets(bytes(data))
    assert offsets(bytes(data), check_crcs=False) == [0, 1, 2, 3, 4]


def test_bombs_stop_at_the_cap() -> None:
    data = build_batch([SimpleRecord(None, bytes(5_000_000))], codec=CompressionType.ZSTD)
    with pytest.raises(DecompressionLimitError):
        offsets(data, limit_bytes=1_000_000)


def test_good_batches_come_before_the_error() -> None:
    data = build_batch(SOME, codec=CompressionType.LZ4) + batch(record(0, key_length=40), 1)
    chunks = iter_arrow([data], options())
    assert len(next(chunks)) == 5
    with pytest.raises(CorruptBatchError):
        next(chunks)


def columns(records: list[SimpleRecord]) -> dict[str, Any]:
    header_type = schema().field("headers").type
    return {
        "key": pa.array([r.key for r in records], pa.binary()),
        "value": pa.array([r.value for r in records], pa.binary()),
        "timestamp": pa.array([r.timestamp for r in records], pa.int64()),
        "headers": pa.array([[{"key": k, "value": v} for k, v in r.headers] or None for r in records], header_type),
    }


def test_encoding_gives_the_bytes_of_build_batch() -> None:
    (encoded,) = encode_from_arrow(**columns(MIXED))
    assert (encoded.first_row, encoded.record_count) == (0, 500)
    assert bytes(encoded.data) == build_batch(MIXED)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_batches_keep_to_their_size_and_follow_in_sequence(codec: CompressionType) -> None:
    encoded = encode_from_arrow(
        **columns(MIXED),
        options=EncodeOptions(
            batch_bytes_max=5000,
            codec=codec,
            producer_id=9,
            producer_epoch=1,
            base_sequence=2**31 - 50,
            transactional=True,
        ),
    )
    assert len(encoded) > 10
    assert [e.first_row for e in encoded[1:]] == [e.first_row + e.record_count for e in encoded[:-1]]
    for data, first, count in encoded:
        part = MIXED[first : first + count]
        assert len(data) <= 5000
        expected = build_batch(
            part,
            codec=codec,
            producer_id=9,
            producer_epoch=1,
            base_sequence=(2**31 - 50 + first) & 0x7FFFFFFF,
            transactional=True,
        )
        assert bytes(data) == expected


def test_a_record_larger_than_the_limit_goes_alone() -> None:
    values = pa.array([b"a", bytes(5000), b"b"])
    encoded = encode_from_arrow(value=values, options=EncodeOptions(batch_bytes_max=1000))
    assert [(e.first_row, e.record_count) for e in encoded] == [(0, 1), (1, 1), (2, 1)]
    (capped, *_) = encode_from_arrow(value=pa.array([b""] * 10), options=EncodeOptions(records_max=4))
    assert capped.record_count == 4


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["x", None, "äöü"]),
        pa.array(["x", None, "äöü"], pa.large_string()),
        pa.array([b"x", None, "äöü".encode()], pa.large_binary()),
        pa.array([b"x", None, "äöü".encode()], pa.binary_view()),
        pa.array([b"zz", b"x", None, "äöü".encode(), b"q"])[1:4],
        pa.chunked_array([[b"x"], [None, "äöü".encode()]]),
        pa.chunked_array([[b"x", None, "äöü".encode()]]),
    ],
    ids=lambda a: str(a.type),
)
def test_every_kind_of_byte_column(array: Any) -> None:
    (encoded,) = encode_from_arrow(value=array, key=array, default_timestamp_ms=5)
    expected = [SimpleRecord(v, v, 5) for v in (b"x", None, "äöü".encode())]
    assert bytes(encoded.data) == build_batch(expected)


def test_fixed_size_and_null_columns() -> None:
    (encoded,) = encode_from_arrow(value=pa.array([b"ab", b"cd"], pa.binary(2)), key=pa.nulls(2))
    assert bytes(encoded.data) == build_batch([SimpleRecord(None, b"ab"), SimpleRecord(None, b"cd")])
    assert encode_from_arrow(value=pa.array([], pa.binary())) == []


def test_timestamps_of_any_unit() -> None:
    for unit, factor in (("s", 0.001), ("ms", 1), ("us", 1000), ("ns", 1_000_000)):
        times = pa.array([int(5000 * factor), None, int(7000 * factor)], pa.int64()).cast(pa.timestamp(unit, "UTC"))
        (encoded,) = encode_from_arrow(value=pa.array([b"", b"", b""]), timestamp=times, default_timestamp_ms=6000)
        assert [r.timestamp for r in opened(bytes(encoded.data))] == [5000, 6000, 7000]


def test_sliced_headers_and_null_lists_that_hide_entries() -> None:
    header_type = schema().field("headers").type
    lists = pa.array([[{"key": "z", "value": b"z"}], [{"key": "a", "value": None}], None, []], header_type)[1:]
    (encoded,) = encode_from_arrow(value=pa.array([b"1", b"2", b"3"]), headers=lists)
    assert [r.headers for r in opened(bytes(encoded.data))] == [(("a", None),), (), ()]


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(TypeError, match="cast the column"):
        encode_from_arrow(value=pa.array([1, 2]))
    with pytest.raises(ValueError, match="column key has 1 rows, value has 2"):
        encode_from_arrow(value=pa.array([b"", b""]), key=pa.array([b""]))
    nameless = pa.array([[{"key": None, "value": b""}]], schema().field("headers").type)
    with pytest.raises(ValueError, match="null key"):
        encode_from_arrow(value=pa.array([b""]), headers=nameless)


def test_rows_are_spread_as_the_default_partitioner_spreads_them() -> None:
    keys = [b"key-%d" % i * (i % 5) for i in range(1000)]
    table = {"value": pa.array([b"v%d" % i for i in range(1000)]), "key": pa.array(keys)}
    partition_of = partitions_for_keys(table["key"], 7)
    assert partition_of.tolist() == [partition_for_key(key, 7) for key in keys]
    assert partitions_for_keys(pa.array([None, b"x"]), 7).tolist()[0] == -1
    spread = rows_by_partition(partition_of, 7)
    for partition, chosen in enumerate(spread):
        (encoded,) = encode_from_arrow(**table, rows=chosen)
        records = opened(bytes(encoded.data))
        assert [r.value for r in records] == [b"v%d" % i for i in range(1000) if partition_of[i] == partition]
        check_crc(encoded.data, 0, read_header(encoded.data))
    with pytest.raises(ValueError, match="at least one"):
        partitions_for_keys(pa.array([b""]), 0)


def test_the_rest_of_the_room_never_loads_the_heavy_libraries() -> None:
    """The broker's memory and start-up rest on this."""
    script = """
        import sys
        from barnabas.protocol.records import batch, build, control, validate
        print(sorted({"numpy", "numba", "pyarrow"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_library_names_the_extra(tmp_path: Path) -> None:
    script = """
        import sys
        sys.modules["numba"] = None
        try:
            import barnabas.protocol.records.columnar
        except ImportError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert "pip install 'barnabas[columnar]'" in done.stdout


def test_kernels_compile_where_no_cache_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only site-packages and no home directory: slower to start, but it works."""
    from numba.core import caching

    from barnabas.protocol.records.columnar._jit import kernel, np, scalar

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])

    @kernel((scalar,))
    def twice(value: Any) -> Any:
        return value * np.int64(2)

    assert twice(21) == 42


def test_a_kernel_is_compiled_at_its_first_call_with_the_kernels_that_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that imports all kernels, and uses a few, starts sooner."""
    from barnabas.protocol.records.columnar import _jit

    compile_it, compiled = _jit._compile, []

    def note(function: Any, signature: Any) -> Any:
        compiled.append(function.__name__)
        return compile_it(function, signature)

    monkeypatch.setattr(_jit, "_compile", note)
    script = """
        @kernel((scalar,))
        def twice(value):
            return value + value

        @kernel((scalar,))
        def four_times(value):
            return twice(twice(value))
    """
    names: dict[str, Any] = {"kernel": _jit.kernel, "scalar": _jit.scalar}
    exec(textwrap.dedent(script), names)
    assert compiled == []
    assert names["four_times"](5) == 20
    assert names["four_times"](6) == 24
    assert names["twice"](6) == 12
    assert compiled == ["twice", "four_times"]
