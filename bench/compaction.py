"""Shell: what compaction costs: MB/s and records/s of a pass, by plain Python and by compiled kernels.

Budget of the compiled path per MB of 100-byte records (9,700): read and CRC twice 0.3 ms, scan and hash twice 1 ms, map
0.5 ms, rebuild what stays 1 ms, write and sync 3 ms: 6 ms, or 170 MB/s.

    python -m bench.compaction [--mb 128] [--keys 50000] [--dir /tmp]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import tempfile
import time
from uuid import UUID

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType
from barnabas.server.node.typed_configs import CLEANER, LOG
from barnabas.server.storage.cleaner.cleanable import assess
from barnabas.server.storage.cleaner.cleaning import EngineFactory
from barnabas.server.storage.cleaner.inline import clean
from barnabas.server.storage.cleaner.keys import PlainKeys
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import OsFileSystem

NOW_MS = 1_700_000_000_000


def bench(
    path: str, engine: EngineFactory, megabytes: int, keys: int, per_batch: int, codec: CompressionType
) -> dict[str, float]:
    """Fill a log with random updates of `keys` keys, clean it once."""
    directory = LogDir.open(OsFileSystem(), path, cluster_id="bench", node_id=1, new_directory_id=UUID(int=1 << 100))
    config = LOG.from_defaults(cleanup_policy=("compact",), segment_bytes=64 << 20)
    log = directory.create_log(TopicPartition("bench", 0), None, config, now_ms=NOW_MS)
    rng = random.Random(1)
    total = 0
    pool = []
    for _ in range(64):
        records = [
            SimpleRecord(b"key-%010d" % rng.randrange(keys), b"%090d" % rng.randrange(1 << 60), NOW_MS)
            for _ in range(per_batch)
        ]
        pool.append(build_batch(records, codec=codec))
    records_total = 0
    while total < megabytes << 20:
        batch = pool[rng.randrange(len(pool))]
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        total += len(batch)
        records_total += per_batch
    log.roll(NOW_MS)
    log.flush()
    found = assess(log, log.log_end_offset, NOW_MS)
    began, cpu = time.perf_counter(), time.process_time()
    done = clean(log, found, now_ms=NOW_MS, secret=(1, 2), config=CLEANER.from_defaults(), engine=engine)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    directory.close(clean=False)
    return {
        "log_mb": round(total / 1e6),
        "records": records_total,
        "records_kept": done.stats.records_kept,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "mb_s": round(total / seconds / 1e6, 1),
        "records_s": round(records_total / seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--keys", type=int, default=5_000)
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    engines: list[tuple[str, EngineFactory]] = [("plain", PlainKeys)]
    try:
        from barnabas.server.storage.cleaner.columns import ColumnarKeys

        engines.append(("columnar", ColumnarKeys))
    except ImportError as missing:
        print(f"columnar left out: {missing}")
    for per_batch, codec in ((150, CompressionType.NONE), (150, CompressionType.ZSTD), (1, CompressionType.NONE)):
        for name, engine in engines:
            path = tempfile.mkdtemp(prefix="barnabas-bench-", dir=options.dir)
            try:
                scale = 4 if name == "plain" else 1
                row = bench(path, engine, max(options.mb // scale, 1), options.keys, per_batch, codec)
                label = {"engine": name, "records_per_batch": per_batch, "codec": codec.name.lower()}
                print(json.dumps({**label, **row}), flush=True)
            finally:
                shutil.rmtree(path)
    print(json.dumps({"peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


if __name__ == "__main__":
    main()
