"""A coordinator reads its log though files cannot be opened for a while; it is not unloaded until the next election."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.node import adapters
from tests.unit.server.storage.logs import TP, LogHarness
from tests.unit.server.storage.memory_disk import MemoryDisk


class Reading:
    """A log that was closed, and the writer of a coordinator that reads it. The first `failures` opens fail."""

    def __init__(self, failures: int) -> None:
        disk = MemoryDisk()
        logs = LogHarness(disk=disk)
        logs.fill(3)
        logs.restart()
        self.failures = failures
        disk.lacks_descriptors = self._lacks
        self.partition = SimpleNamespace(log=logs.log, is_leader=True)
        partitions: Any = SimpleNamespace(get=lambda topic, partition: self.partition)
        self._writer = adapters.ReplicatedWriter(partitions, ThreadPoolExecutor(1))

    def _lacks(self, path: str) -> bool:
        self.failures -= 1
        if self.failures == 5:
            self.partition.is_leader = False
        return self.failures >= 0

    async def offsets(self) -> list[int]:
        chunks = [bytes(chunk) async for chunk in self._writer.read_log(TP)]
        return [header.base_offset for chunk in chunks for _, header in iter_batches(chunk)]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_READ_AGAIN_S", 0.001)


def test_a_log_that_cannot_be_opened_is_read_again() -> None:
    reading = Reading(failures=3)
    assert asyncio.run(reading.offsets()) == [0, 1, 2]
    assert reading.failures < 0


def test_a_broker_that_no_longer_leads_stops_reading() -> None:
    reading = Reading(failures=8)
    with pytest.raises(KafkaError) as raised:
        asyncio.run(reading.offsets())
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
