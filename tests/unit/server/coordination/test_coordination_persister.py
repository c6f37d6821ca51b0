"""The client of the share coordinators, with the requests of many share partitions."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import TASKS_AT_ONCE
from barnabas.protocol.wire.messages import read_share_group_state_summary as summing
from barnabas.protocol.wire.schema import Request
from barnabas.server.coordination.share.persister import ATTEMPTS_MAX, Persister
from tests.unit.server.coordination.kit import run_virtual, seeded

TOPIC = UUID(int=7)


class Channel:
    """Answers with the number of the partition as start offset. A partition in `moving` has no coordinator the first
    times."""

    def __init__(self, moving: dict[int, int] | None = None) -> None:
        self.asked: list[int] = []
        self.most = self._running = 0
        self._moving = moving or {}

    async def send(self, coordinator_key: str, request: Request) -> Any:
        assert isinstance(request, summing.ReadShareGroupStateSummaryRequest)
        partition = request.topics[0].partitions[0].partition
        self.asked.append(partition)
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(0)
        self._running -= 1
        if self._moving.get(partition, 0) > 0:
            self._moving[partition] -= 1
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        result = summing.PartitionResult(partition=partition, start_offset=partition)
        topic = summing.ReadStateSummaryResult(topic_id=TOPIC, partitions=[result])
        return summing.ReadShareGroupStateSummaryResponse(results=[topic])


def summaries(channel: Channel, partitions: list[int]) -> dict[int, Any]:
    found = run_virtual(Persister(channel, seeded()).summaries("g", {TOPIC: partitions}))
    return {partition: answer for (_, partition), answer in found.items()}


def test_many_share_partitions_are_asked_for_a_few_at_a_time() -> None:
    channel = Channel()
    count = 5 * TASKS_AT_ONCE
    found = summaries(channel, list(range(count)))
    assert [answer.start_offset for answer in found.values()] == list(range(count))
    assert channel.most == TASKS_AT_ONCE


def test_a_share_partition_that_is_named_often_is_asked_for_once() -> None:
    channel = Channel()
    assert list(summaries(channel, [1, 0, 1, 1])) == [0, 1]
    assert channel.asked == [0, 1]


def test_share_partitions_without_a_coordinator_are_retried_after_all_others() -> None:
    channel = Channel({1: 1, 3: 2})
    found = summaries(channel, [0, 1, 2, 3])
    assert [answer.start_offset for answer in found.values()] == [0, 1, 2, 3]
    assert channel.asked == [0, 1, 2, 3, 1, 3, 3]


def test_the_last_error_is_the_result_if_the_coordinator_stays_away() -> None:
    channel = Channel({1: 1_000})
    found = summaries(channel, [0, 1])
    assert found[0].start_offset == 0
    assert isinstance(found[1], KafkaError)
    assert found[1].code is ErrorCode.NOT_COORDINATOR
    assert channel.asked == [0, *[1] * ATTEMPTS_MAX]
