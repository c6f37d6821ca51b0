"""A leader's log, an object store with faults, and the events of its segments, in virtual time.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, cast

from barnabas.core.backoff import Backoff
from barnabas.server.tiering.copier import SegmentCopier
from barnabas.server.tiering.errors import RemoteStorageError
from barnabas.server.tiering.records import decode_event, encode_event
from barnabas.server.tiering.remote_log import RemoteLog
from barnabas.server.tiering.store.retrying import RetryingStore, StorePatience
from barnabas.server.tiering.values import RemoteLogEvent, RemotePartition
from barnabas.testing.sim.loop import SimLoop
from barnabas.testing.sim.objects import ObjectFaults, SimObjectStore
from tests.configs import log_config
from tests.unit.server.storage.logs import LogHarness, batch
from tests.unit.server.tiering.segments import PARTITION

T = TypeVar("T")
DISK = cast("Executor", None)
PATIENCE = StorePatience(timeout_ms=5_000, attempts=3, backoff=Backoff(100, 1_000))


class LoopClock:
    """The clock of the loop."""

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


class EventTopic:
    """`__remote_log_metadata` as a list of records. `fails` makes the next writes fail without effect."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.fails = 0
        self._logs: dict[RemotePartition, RemoteLog] = {}

    async def write(self, event: RemoteLogEvent) -> bool:
        await asyncio.sleep(0.001)
        if self.fails:
            self.fails -= 1
            raise RemoteStorageError("The metadata topic has no leader.")
        self.records.append(encode_event(event))
        return self.remote_log(PARTITION).apply(decode_event(self.records[-1]))

    def remote_log(self, partition: RemotePartition) -> RemoteLog:
        return self._logs.setdefault(partition, RemoteLog())

    def replayed(self) -> RemoteLog:
        """The state that a broker has which reads the topic from its start."""
        remote = RemoteLog()
        for record in self.records:
            remote.apply(decode_event(record))
        return remote


class House:
    """A leader and what it copies to."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.rng = random.Random(seed)
        self.harness = LogHarness(config=log_config(internal_segment_bytes=400, index_interval_bytes=100, **config))
        self.objects = SimObjectStore(self.rng, ObjectFaults())
        self.store = RetryingStore(self.objects, PATIENCE, self.rng)
        self.topic = EventTopic()
        self.copier = SegmentCopier(self.store, self.topic, DISK, LoopClock(), self.rng, broker_id=1)

    @property
    def remote(self) -> RemoteLog:
        return self.topic.remote_log(PARTITION)

    def fill(self, batches: int) -> None:
        """Append batches of three records; the log rolls after a few of them."""
        start = self.harness.log.log_end_offset
        for number in range(batches):
            self.harness.append(batch(3, timestamp=1_000 + start + 3 * number))

    def stored(self, suffix: str) -> dict[int, bytes]:
        """The objects with a suffix, by their base offset."""
        found = {name: data for name, data in self.objects.objects.items() if name.endswith(suffix)}
        return {int(name.rpartition("/")[2][:20]): data for name, data in found.items()}


def run(main: Callable[[], Coroutine[Any, Any, T]], seed: int = 1) -> T:
    """Run `main` in virtual time."""
    loop = SimLoop(random.Random(seed))
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()
