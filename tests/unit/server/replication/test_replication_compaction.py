"""Which log is cleaned when, what is said about it, and the cleaner's own process."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import Metrics, render
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.server.replication.cleaning.compaction import CleanerStatus, Compactor
from barnabas.server.replication.cleaning.engine import CleanerEngine, InlineEngine, ProcessEngine, Step
from barnabas.server.replication.partitions import Partitions
from barnabas.server.storage.cleaner.errors import CleaningError
from barnabas.server.storage.cleaner.task import CleanerConfig, CleaningTask
from barnabas.server.storage.fs import OsFileSystem
from barnabas.server.storage.log import Log
from tests.configs import cleaner_config, log_config

CONFIG = log_config(cleanup_policy=("compact",), internal_segment_bytes=500, file_delete_delay_ms=0)


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Hosted:
    """What the compactor wants of a `Partition`."""

    def __init__(self, name: TopicPartition, log: Log) -> None:
        self.name = name
        self.log: Log | None = log
        self.failed = False

    @property
    def high_watermark(self) -> int:
        return 0 if self.log is None else self.log.log_end_offset


class Hosts:
    """What it wants of `Partitions`."""

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, int], Hosted] = {}

    def __iter__(self) -> Iterator[Hosted]:
        return iter(self.by_name.values())

    def get(self, topic: str, partition: int) -> Hosted | None:
        return self.by_name.get((topic, partition))

    def require(self, topic: str, partition: int) -> Hosted:
        found = self.get(topic, partition)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def log_dir_of(self, partition: Hosted) -> None:
        return None


class World:
    def __init__(self, folder: Path, engine: type[CleanerEngine] | None = None) -> None:
        self.fs = OsFileSystem()
        self.folder = folder
        self.hosts = Hosts()
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.settings = cleaner_config(log_cleaner_backoff_ms=10, log_cleaner_dedupe_buffer_size=1 << 20)
        self.executor = ThreadPoolExecutor(2)
        self.compactor = Compactor(
            cast("Partitions", self.hosts),
            lambda: self.settings,
            engine or (lambda: InlineEngine(self.fs)),
            self.executor,
            self.clock,
            random.Random(1),
            self.metrics,
        )

    def host(self, topic: str, records: int = 60) -> Log:
        name = TopicPartition(topic, 0)
        path = str(self.folder / str(name))
        self.fs.mkdir(path)
        log = Log.open(self.fs, path, CONFIG, topic_partition=name, now_ms=self.clock.ms, clean_shutdown=True)
        for i in range(records):
            record = SimpleRecord(b"k%d" % (i % 3), b"%d" % i, self.clock.ms)
            log.append_as_leader(build_batch([record]), leader_epoch=0, now_ms=self.clock.ms)
        self.hosts.by_name[topic, 0] = Hosted(name, log)
        return log

    async def until_idle(self) -> None:
        """Run the compactor until a look finds nothing due."""
        task = asyncio.create_task(self.compactor.run())
        try:
            while await self.compactor._choose() is not None or any(
                h.log is not None and h.log.cleaning is not None for h in self.hosts
            ):
                await asyncio.sleep(0.01)  # the cleaner is another process
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.executor.shutdown()


def values(log: Log) -> list[str]:
    found: list[str] = []
    offset = 0
    while offset < log.log_end_offset:
        data = log.read(offset, 10_000).data
        for pos, header in iter_batches(data):
            found += [(r.value or b"").decode() for r in iter_records(data, pos, header)]
            offset = header.next_offset
    return found


def test_cleaner_compacts_logs_that_are_due(tmp_path: Path) -> None:
    world = World(tmp_path)
    logs = [world.host("a"), world.host("b")]
    asyncio.run(world.until_idle())
    for log in logs:
        assert len(values(log)) < 20
        assert values(log)[-3:] == ["57", "58", "59"]
        assert log.cleaned_offset == log.segments.active.base_offset
    assert world.compactor.failures == {}
    assert "barnabas_log_cleaner_passes_total 2" in render(world.metrics)
    facts = world.compactor.status(TopicPartition("a", 0))
    assert facts.last_pass is not None
    assert (facts.enabled, facts.running, facts.failure, facts.last_pass.ended_ms) == (True, False, None, 1_000_000)
    assert facts.last_pass.done.end_offset == logs[0].cleaned_offset


def test_failed_pass_is_reported_and_other_logs_are_cleaned(tmp_path: Path) -> None:
    world = World(tmp_path)
    damaged, sound = world.host("damaged", 90), world.host("sound")
    path = tmp_path / "damaged-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    asyncio.run(world.until_idle())
    assert len(values(sound)) < 20
    assert not damaged.failed
    name = TopicPartition("damaged", 0)
    failure = world.compactor.status(name).failure
    assert failure is not None
    assert failure.reason.startswith("CRC of the batch at byte 0")
    assert (failure.count, failure.since_ms, failure.retry_ms) == (1, 1_000_000, 1_060_000)
    text = render(world.metrics)
    assert "barnabas_log_cleaner_uncleanable_partitions 1" in text
    assert 'barnabas_log_cleaner_uncleanable_since_seconds{partition="0",topic="damaged"} 1000' in text
    data[70] ^= 1  # someone repairs it
    path.write_bytes(data)
    world.executor = world.compactor._executor = ThreadPoolExecutor(2)
    world.clock.ms += 60_000
    asyncio.run(world.until_idle())
    assert world.compactor.failures == {}
    assert "topic=" not in render(world.metrics)
    assert len(values(damaged)) < 20


def test_disabled_cleaner_compacts_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = world.host("a")
    world.settings = cleaner_config(log_cleaner_enable=False, log_cleaner_backoff_ms=10)

    async def a_while() -> None:
        task = asyncio.create_task(world.compactor.run())
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(a_while())
    assert log.cleaned_offset == 0
    assert world.compactor.status(TopicPartition("a", 0)) == CleanerStatus(False, False, None, None)


def test_cleaner_limits_are_divided_by_the_threads() -> None:
    def sized(dedupe_buffer: int, io_buffer: int, rate: float) -> CleanerConfig:
        return cleaner_config(
            log_cleaner_threads=4,
            log_cleaner_dedupe_buffer_size=dedupe_buffer,
            log_cleaner_io_buffer_size=io_buffer,
            log_cleaner_io_max_bytes_per_second=rate,
        )

    assert sized(1 << 20, 1 << 18, 1000.0).per_thread == sized(1 << 18, 1 << 16, 250.0)


def test_cleaner_process_compacts_a_log(tmp_path: Path) -> None:
    """Two passes by one process, one that fails in between; then it is gone."""
    world = World(tmp_path)
    good, bad, last = world.host("good"), world.host("bad"), world.host("last")
    path = tmp_path / "bad-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    engines: list[ProcessEngine] = []

    def new_engine() -> CleanerEngine:
        engines.append(ProcessEngine())
        return engines[-1]

    world.compactor._new_engine = new_engine
    asyncio.run(world.until_idle())
    assert len(values(good)) < 20
    assert len(values(last)) < 20
    assert list(world.compactor.failures) == [TopicPartition("bad", 0)]
    assert (bad.cleaned_offset, path.read_bytes()) == (0, bytes(data))
    assert [e._process for e in engines] == [None]
    assert not list(tmp_path.rglob("*.cleaned"))


ORPHAN = """
import os, signal, sys
from barnabas.server.replication.cleaning.engine import ProcessEngine
from barnabas.server.storage.cleaner.task import CleanerConfig, CleaningTask

config = CleanerConfig(True, 1, 0, 1000, 0.9, 1000, 1e9)
engine = ProcessEngine()
engine.begin(CleaningTask(sys.argv[1], "t-0", [], 0, 0, 0, 0, 100, 100, 100, (1, 2), config, 1_000_000))
engine.next()
print(engine._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_cleaner_process_ends_with_its_broker(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ORPHAN, str(tmp_path)], capture_output=True, text=True, timeout=60)
    worker = Path("/proc") / done.stdout.strip() / "cmdline"
    assert done.stdout.strip().isdigit(), done.stderr
    for _ in range(1000):
        try:
            alive = b"replication.cleaning.worker" in worker.read_bytes()
        except OSError:
            alive = False
        if not alive:
            return
        os.sched_yield()
    raise AssertionError("the cleaner's process is still there")


class _DyingEngine:
    """The process is killed in the middle of a pass."""

    def __init__(self) -> None:
        self._inner = ProcessEngine()

    def begin(self, task: CleaningTask) -> None:
        self._inner.begin(task)

    def next(self) -> Step:
        process: Any = self._inner._process
        process.kill()
        return self._inner.next()

    def stop(self) -> None:
        self._inner.stop()


def test_pass_fails_when_the_cleaner_process_dies(tmp_path: Path) -> None:
    world = World(tmp_path, _DyingEngine)
    log = world.host("a")
    with pytest.raises(CleaningError, match="ended during a pass"):
        asyncio.run(world.compactor.compact(TopicPartition("a", 0)))
    assert log.cleaning is None
    assert len(values(log)) == 60
    world.executor.shutdown()


def test_compact_on_demand_compacts_a_log_that_is_not_due(tmp_path: Path) -> None:
    world = World(tmp_path)
    log = world.host("a")
    done = asyncio.run(world.compactor.compact(TopicPartition("a", 0)))
    assert done is not None
    assert done.end_offset == log.cleaned_offset
    assert done.stats.records_read - done.stats.records_kept > 40
    world.executor.shutdown()
