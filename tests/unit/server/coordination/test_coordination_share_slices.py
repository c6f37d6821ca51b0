"""A request of the share coordinator with many partitions starts a bounded number of operations at once."""

from __future__ import annotations

import asyncio
from uuid import UUID

from barnabas.core.work import TASKS_AT_ONCE
from barnabas.protocol.wire.messages.delete_share_group_state import PartitionData
from barnabas.server.coordination.share.service import _for_each_partition
from barnabas.server.coordination.share.state import ShareKey


def test_operations_are_started_a_few_at_a_time_and_answered_in_order() -> None:
    running = most = 0

    async def one(key: ShareKey, requested: PartitionData) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return key.partition

    count = 5 * TASKS_AT_ONCE + 3
    topics = [(UUID(int=topic), [PartitionData(partition=index) for index in range(count)]) for topic in (1, 2)]
    found = asyncio.run(_for_each_partition("g", topics, one))
    assert found == [(UUID(int=1), list(range(count))), (UUID(int=2), list(range(count)))]
    assert most == TASKS_AT_ONCE
