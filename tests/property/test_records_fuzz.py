"""Damaged batches: every reader answers with records or with CorruptBatchError, and all readers agree on which."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.protocol.records.batch import Record, iter_batches, iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, seal
from barnabas.protocol.records.compression import CompressionType, compress, decompress
from barnabas.protocol.records.errors import CorruptBatchError, RecordValidationError
from barnabas.protocol.records.scan import scan_records
from barnabas.protocol.records.validate import RecordCheck, ValidationRules, validate_and_assign

LIMIT = 1 << 20
SEEDS = range(40)
MUTANTS = 60


def sample(rng: random.Random) -> list[SimpleRecord]:
    def text() -> bytes | None:
        return None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 1, 5, 63, 64, 200)))

    headers = [(("h", b"x"), ("", None))[: rng.randrange(3)] for _ in range(8)]
    return [SimpleRecord(text(), text(), rng.randrange(10_000), headers[i]) for i in range(rng.randrange(1, 8))]


def mutants(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Flips, overwritten bytes with telling values, removed and repeated pieces."""
    for _ in range(MUTANTS):
        out = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(out))
            match rng.randrange(4):
                case 0:
                    out[at] ^= 1 << rng.randrange(8)
                case 1:
                    out[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
                case 2:
                    del out[at : at + rng.randrange(1, 9)]
                case _:
                    out[at:at] = out[at : at + rng.randrange(1, 9)]
            if not out:
                out = bytearray(1)
        yield bytes(out)


def outcome(data: bytes) -> list[Record] | None:
    """The records of a sealed batch, or None if it is corrupt."""
    try:
        return list(iter_records(data, 0, read_header(data), limit_bytes=LIMIT))
    except CorruptBatchError:
        return None


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_records(seed: int) -> None:
    """The CRC is put right after the damage, so that it reaches the readers; all of them must judge alike."""
    rng = random.Random(seed)
    records = sample(rng)
    header = read_header(build_batch(records))
    columnar = _columnar()
    for payload in mutants(build_batch(records)[61:], rng):
        data = seal(header, payload)
        expected = outcome(data)
        numbered = expected is not None and [r.offset for r in expected] == list(range(len(expected)))
        try:
            scan_records(payload, header.record_count, 0)
            assert numbered
        except CorruptBatchError:
            assert not numbered
        for check in RecordCheck:
            rules = ValidationRules("t", record_check=check, timestamp_after_max_ms=2**62)
            try:
                validate_and_assign(data, rules, first_offset=0, leader_epoch=0, now_ms=0)
                assert numbered or check is RecordCheck.CHAIN
            except RecordValidationError:
                assert not numbered
        if columnar is not None:
            assert columnar(data) == (None if expected is None else [(r.offset, r.key, r.value) for r in expected])


def _columnar() -> Any:
    try:
        from barnabas.protocol.records.columnar import DecodeOptions, decode_to_arrow
        from barnabas.protocol.records.columnar.segments import Selection
    except ImportError:
        return None

    def decode(data: bytes) -> list[tuple[int, bytes | None, bytes | None]] | None:
        try:
            table = decode_to_arrow([data], DecodeOptions("t", 0, selection=Selection(limit_bytes=LIMIT)))
        except CorruptBatchError:
            return None
        table.validate(full=True)
        return [(row["offset"], row["key"], row["value"]) for row in table.to_pylist()]

    return decode


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_batches(seed: int) -> None:
    """Headers, lengths and all, as they could come off a socket or a disk."""
    rng = random.Random(1000 + seed)
    data = build_batch(sample(rng), codec=rng.choice(list(CompressionType))) + build_batch(sample(rng), base_offset=100)
    rules = ValidationRules("t", decompressed_bytes_max=LIMIT)
    for mutant in mutants(data, rng):
        with contextlib.suppress(CorruptBatchError):
            for pos, header in iter_batches(mutant):
                for record in iter_records(mutant, pos, header, limit_bytes=LIMIT):
                    assert record.key is None or len(record.key) <= LIMIT
        with contextlib.suppress(CorruptBatchError, RecordValidationError):
            validate_and_assign(mutant, rules, first_offset=0, leader_epoch=0, now_ms=0)


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
@pytest.mark.parametrize("seed", range(10))
def test_damaged_compressed_payloads(seed: int, codec: CompressionType) -> None:
    rng = random.Random(2000 + seed)
    plain = rng.randbytes(300) + bytes(rng.randrange(200_000)) + rng.randbytes(50)
    for mutant in mutants(compress(codec, plain), rng):
        with contextlib.suppress(CorruptBatchError):
            assert len(decompress(codec, mutant, LIMIT)) <= LIMIT
