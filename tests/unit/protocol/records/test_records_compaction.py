"""The parts that compaction is made of: hashes of keys, batches rebuilt under a mask."""

from __future__ import annotations

import numpy as np
import pytest

from barnabas.protocol.records.batch import TimestampType, iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, rebuild_batch
from barnabas.protocol.records.columnar.compaction import retain, scan_keys, siphash
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.errors import CorruptBatchError

RECORDS = [
    SimpleRecord(
        None if i % 7 == 0 else b"key-%d" % (i % 40),
        None if i % 5 == 0 else b"v" * i,
        1000 + i,
        (("h", None),) * (i % 3),
    )
    for i in range(200)
]
MASKS = {
    "some": [i % 3 == 1 for i in range(200)],
    "first": [i == 0 for i in range(200)],
    "last": [i == 199 for i in range(200)],
    "all": [True] * 200,
    "none": [False] * 200,
}


@pytest.mark.parametrize("mask", list(MASKS))
@pytest.mark.parametrize("horizon", [None, 5])
@pytest.mark.parametrize("codec", list(CompressionType))
def test_the_kernel_and_the_plain_rebuild_agree(codec: CompressionType, horizon: int | None, mask: str) -> None:
    data = build_batch(RECORDS, base_offset=900, codec=codec, producer_id=1, producer_epoch=0, base_sequence=4)
    header = read_header(data)
    kept = [r for r, keep in zip(iter_records(data, 0, header), MASKS[mask], strict=True) if keep]
    expected = rebuild_batch(header, kept, delete_horizon_ms=horizon)
    assert retain(data, 0, header, np.array(MASKS[mask]), delete_horizon_ms=horizon) == expected


def test_a_compacted_batch_is_compacted_again_under_another_codec() -> None:
    data = build_batch(RECORDS, base_offset=900)
    once = retain(data, 0, read_header(data), np.array(MASKS["some"]), delete_horizon_ms=777)
    header = read_header(once)
    again = retain(once, 0, header, np.arange(header.record_count) % 2 == 0, codec=CompressionType.ZSTD)
    kept = list(iter_records(once, 0, header))[::2]
    assert list(iter_records(again, 0, read_header(again))) == kept
    assert read_header(again).delete_horizon_ms == 777


def test_append_time_stays() -> None:
    data = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=5000)
    kept = retain(data, 0, read_header(data), np.array(MASKS["some"]))
    assert {r.timestamp for r in iter_records(kept, 0, read_header(kept))} == {5000}


def test_scanning_keys() -> None:
    data = b"pad" + build_batch(RECORDS, base_offset=900, codec=CompressionType.LZ4)
    scan = scan_keys(data, 3, read_header(data, 3), (1, 2))
    assert scan.offsets.tolist() == list(range(900, 1100))
    assert scan.timestamps.tolist() == [r.timestamp for r in RECORDS]
    assert scan.has_key.tolist() == [r.key is not None for r in RECORDS]
    assert scan.is_tombstone.tolist() == [r.value is None for r in RECORDS]
    by_key: dict[bytes | None, set[bytes]] = {}
    for r, hashed in zip(RECORDS, scan.hashes, strict=True):
        by_key.setdefault(r.key, set()).add(hashed.tobytes())
    assert all(len(hashes) == 1 for hashes in by_key.values())
    assert len({next(iter(hashes)) for hashes in by_key.values()}) == len(by_key)
    other = scan_keys(data, 3, read_header(data, 3), (1, 3))
    assert (other.hashes[scan.has_key] != scan.hashes[scan.has_key]).all()


def test_siphash_agrees_with_its_published_vectors() -> None:
    data = np.arange(16, dtype=np.uint8)
    k0, k1 = (np.uint64(int.from_bytes(bytes(range(start, start + 8)), "little")) for start in (0, 8))
    out = np.empty((3, 2), np.uint64)
    assert siphash(data, np.zeros(3, np.int64), np.array([0, 1, 15], np.int32), k0, k1, out) == 0
    assert [row.tobytes().hex() for row in out] == [
        "a3817f04ba25a8e66df67214c7550293",
        "da87c1d86b99af44347659119b22fc45",
        "5493e99933b0a8117e08ec0f97cfc3d9",
    ]


def test_damage_and_wrong_masks_are_refused() -> None:
    data = build_batch(RECORDS)
    with pytest.raises(ValueError, match="3 entries, the batch 200"):
        retain(data, 0, read_header(data), np.array([True] * 3))
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(CorruptBatchError, match="CRC"):
        scan_keys(flipped, 0, read_header(flipped), (1, 2))
