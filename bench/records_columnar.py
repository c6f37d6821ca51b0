"""Shell: `python -m bench.records_columnar`: records per second, decoding and encoding, and what validation costs.

Each row is the best of a few runs over a few MB in memory on one core. The peers are the record classes of kafka-python
(pure Python) and aiokafka (Cython), where they are installed; they give one Python object per record, as our own plain
reader does, while the columnar codec fills Arrow arrays.

Budget on a 2-core machine: scan 40 M/s, decode to Arrow 10 M/s at 100 B, encode 8 M/s at 100 B, chain check 0.1 us.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.table import Table

from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.columnar import (
    COLUMNS,
    DecodeOptions,
    EncodeOptions,
    decode_to_arrow,
    encode_from_arrow,
    iter_arrow,
)
from barnabas.protocol.records.columnar.partition import partitions_for_keys
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.validate import RecordCheck, ValidationRules, validate_and_assign

TOTAL_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 1024 * 1024
NOW = 1_700_000_000_000
SCALARS = tuple(name for name in COLUMNS if name != "headers")


def make(value_bytes: int) -> tuple[list[SimpleRecord], bytes, int]:
    """One batch's records, a buffer of many such batches, and the records in it."""
    count = BATCH_BYTES // (value_bytes + 16)
    records = [SimpleRecord(b"key-%05d" % i, bytes([i % 251]) * value_bytes, NOW + i) for i in range(count)]
    batch = build_batch(records)
    times = TOTAL_BYTES // len(batch)
    return records, batch * times, count * times


def best_seconds(work: Callable[[], Any], seconds: float = 1.0) -> float:
    """The shortest of the runs that fit into `seconds` (at least two)."""
    best, spent, runs = float("inf"), 0.0, 0
    while runs < 2 or spent < seconds:
        start = time.perf_counter()
        work()
        took = time.perf_counter() - start
        best, spent, runs = min(best, took), spent + took, runs + 1
    return best


def exhaust(items: Iterator[Any]) -> None:
    for _ in items:
        pass


def read_plainly(buffer: bytes) -> None:
    for pos, header in iter_batches(buffer):
        exhaust(iter_records(buffer, pos, header))


def peer_reader(module: str) -> Callable[[bytes], None] | None:
    try:
        memory_records = import_module(module).MemoryRecords
    except ImportError:
        return None

    def read(buffer: bytes) -> None:
        found = memory_records(buffer)
        while (batch := found.next_batch()) is not None:
            for record in batch:
                _ = record.key, record.value

    return read


def kafka_python_encoder(records: list[SimpleRecord]) -> Callable[[], None] | None:
    try:
        builder_class = import_module("kafka.record.memory_records").MemoryRecordsBuilder
    except ImportError:
        return None

    def encode() -> None:
        builder = builder_class(2, 0, 1 << 30)
        for key, value, timestamp, _ in records:
            builder.append(timestamp, key, value)
        builder.close()

    return encode


def decoding(value_bytes: int, buffer: bytes, count: int) -> Iterator[tuple[str, float]]:
    """(what, records per second)"""
    yield "plain reader (iter_records)", count / best_seconds(lambda: read_plainly(buffer))
    for name, module in (
        ("kafka-python", "kafka.record.memory_records"),
        ("aiokafka (Cython)", "aiokafka.record.memory_records"),
    ):
        read = peer_reader(module)
        if read is not None:
            yield name, count / best_seconds(lambda read=read: read(buffer))  # type: ignore[misc]
    for label, columns in (
        ("offsets only", ("offset",)),
        ("value", ("value",)),
        ("all but headers", SCALARS),
        ("all", COLUMNS),
    ):
        options = DecodeOptions("t", 0, columns=columns)
        seconds = best_seconds(lambda options=options: exhaust(iter_arrow([buffer], options)))  # type: ignore[misc]
        yield f"columnar: {label}", count / seconds


def encoding(records: list[SimpleRecord], buffer: bytes, count: int) -> Iterator[tuple[str, float]]:
    yield "plain builder (build_batch)", len(records) / best_seconds(lambda: build_batch(records))
    peer = kafka_python_encoder(records)
    if peer is not None:
        yield "kafka-python", len(records) / best_seconds(peer)
    table = decode_to_arrow([buffer], DecodeOptions("t", 0)).combine_chunks()
    options = EncodeOptions(batch_bytes_max=BATCH_BYTES)
    columns = {"value": table["value"], "key": table["key"], "timestamp": table["timestamp"]}
    yield "columnar", count / best_seconds(lambda: encode_from_arrow(**columns, options=options))
    yield "columnar: murmur2 of the keys", count / best_seconds(lambda: partitions_for_keys(table["key"], 12))


def validation() -> Iterator[tuple[str, int, int, float]]:
    """(what, records, bytes, seconds per batch): a 16 KB batch as librdkafka sends them, and smaller ones."""
    for count in (1, 10, 145):
        records = [SimpleRecord(b"key-%d" % i, b'{"a":%06d}' % i * 8, NOW + i) for i in range(count)]
        for codec in (CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD):
            batch = build_batch(records, codec=codec)
            for check in RecordCheck:
                rules = ValidationRules("t", record_check=check)

                def validate(batch: bytes = batch, rules: ValidationRules = rules) -> None:
                    validate_and_assign(batch, rules, first_offset=0, leader_epoch=0, now_ms=NOW)

                yield f"{codec.config_name}, {check.value}", count, len(batch), best_seconds(validate, 0.1)


def show(console: Console, title: str, rows: Iterator[tuple[str, float]]) -> None:
    table = Table("", "records/s", "times the first", title=title)
    base = 0.0
    for name, rate in rows:
        base = base or rate
        table.add_row(name, f"{rate / 1e6:.2f} M", f"{rate / base:.1f}")
    console.print(table)


def main() -> None:
    console = Console()
    for value_bytes in (100, 1000):
        records, buffer, count = make(value_bytes)
        show(console, f"decoding, values of {value_bytes} B", decoding(value_bytes, buffer, count))
        show(console, f"encoding, values of {value_bytes} B", encoding(records, buffer, count))
    table = Table(
        "codec, check", "records", "bytes", "us per batch", "us per record", title="validating a produced batch"
    )
    for name, count, size, seconds in validation():
        table.add_row(name, str(count), str(size), f"{seconds * 1e6:.1f}", f"{seconds * 1e6 / count:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
