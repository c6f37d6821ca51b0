"""Shell: what an append, a read and an open cost.

Budget of an append of 16 KB: CRC-32C 1 µs (at 16 GB/s), header parse and checks 4 µs, one `pwritev` into the page cache
5 to 8 µs, bookkeeping 3 µs: 15 µs, or 1 GB/s. A read of 1 MB is one `pread`, about 150 µs, most of it the copy.

    python bench/storage_append.py [--mb 512] [--batch 16384] [--dir /tmp]
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.node.typed_configs import LOG
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import OsFileSystem

NOW_MS = 1_700_000_000_000


def open_dir(path: str) -> LogDir:
    return LogDir.open(OsFileSystem(), path, cluster_id="bench", node_id=1, new_directory_id=UUID(int=1 << 100))


def bench_log(path: str, total_mb: int, batch_bytes: int) -> dict[str, float]:
    directory = open_dir(path)
    log = directory.create_log(TopicPartition("bench", 0), None, LOG.from_defaults(), now_ms=NOW_MS)
    value = b"x" * 100
    batch = build_batch([SimpleRecord(None, value, NOW_MS)] * max(batch_bytes // 108, 1))
    count = max(total_mb * (1 << 20) // len(batch), 1)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    start = time.perf_counter()
    for _ in range(count):
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    append_s = time.perf_counter() - start
    start = time.perf_counter()
    offset = size = reads = 0
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).data
        for _, header in iter_batches(data):
            offset = header.next_offset
        size += len(data)
        reads += 1
    read_s = time.perf_counter() - start
    start = time.perf_counter()
    tail = log.log_end_offset - 1
    for _ in range(10_000):
        log.read(tail, 1 << 20)
    tail_s = time.perf_counter() - start
    directory.close(clean=False)
    start = time.perf_counter()
    directory = open_dir(path)
    directory.open_log(directory.scan()[0], LOG.from_defaults(), now_ms=NOW_MS)
    recover_s = time.perf_counter() - start
    directory.close(clean=False)
    return {
        "batch_bytes": len(batch),
        "append_us": round(append_s / count * 1e6, 2),
        "append_mb_s": round(count * len(batch) / append_s / 1e6),
        "read_mb_s": round(size / read_s / 1e6),
        "read_us": round(read_s / reads * 1e6, 1),
        "tail_read_us": round(tail_s / 10_000 * 1e6, 2),
        "recover_mb_s": round(size / recover_s / 1e6),
    }


def bench_open(path: str, partitions: int) -> dict[str, float]:
    directory = open_dir(path)
    batch = build_batch([SimpleRecord(b"k", b"v" * 50, NOW_MS)] * 10)
    start = time.perf_counter()
    for i in range(partitions):
        log = directory.create_log(TopicPartition("many", i), UUID(int=1), LOG.from_defaults(), now_ms=NOW_MS)
        for _ in range(10):
            log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    create_s = time.perf_counter() - start
    start = time.perf_counter()
    directory.close()
    close_s = time.perf_counter() - start
    start = time.perf_counter()
    directory = open_dir(path)
    found = directory.scan()
    for entry in found:
        assert directory.open_log(entry, LOG.from_defaults(), now_ms=NOW_MS).log_end_offset == 100
    open_s = time.perf_counter() - start
    assert directory.clean_shutdown
    directory.close()
    return {
        "partitions": partitions,
        "create_and_fill_ms_each": round(create_s / partitions * 1e3, 3),
        "close_ms_each": round(close_s / partitions * 1e3, 3),
        "open_ms_each": round(open_s / partitions * 1e3, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16_384)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    path = tempfile.mkdtemp(prefix="barnabas-bench-", dir=options.dir)
    try:
        print(json.dumps(bench_log(f"{path}/log", options.mb, options.batch)))
        print(json.dumps(bench_open(f"{path}/many", options.partitions)))
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
