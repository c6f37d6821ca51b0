"""Programs of two members of a group, of which one is interrupted, and the other takes over.

The rule: together they receive every record at least once; a member begins where everything before has been received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.system.client.interrupted.attempts import Interrupted
from tests.system.client.interrupted.world import RECORDS, World

CALLS: Final = 25
"""The number of interrupted calls before, and after the second member joins."""
STEPS_MAX: Final = 2_000
"""The number of calls after which the second member must have received everything."""


class Listener(RebalanceListener):
    """Notes the calls. The asyncio variant suspends in each, so that calls are cancelled while it runs."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.calls = 0

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        self.member.begin(partitions)
        return None if self.member.world.is_blocking else self._suspend()

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        return None if self.member.world.is_blocking else self._suspend()

    async def _suspend(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.calls += 1


class Member:
    """A member of the group. `seen` is common to the members."""

    def __init__(self, world: World, consumer: Any, seen: dict[TopicPartition, set[int]]) -> None:
        self.world = world
        self.consumer = consumer
        self.seen = seen
        self.next: dict[TopicPartition, int] = {}
        """The next offset of each partition; unknown between its assignment and its first record."""

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.next.pop(partition, None)

    def receive(self, records: Iterable[Any]) -> None:
        for record in records:
            partition, offset = record.topic_partition, record.offset
            if partition in self.next:
                assert offset == self.next[partition], f"{partition}: {offset} after {self.next[partition] - 1}"
            assert self.seen[partition].issuperset(range(offset)), f"{partition}: {offset}, others were passed over"
            self.seen[partition].add(offset)
            self.next[partition] = offset + 1


async def take_turns(world: World, *, protocol: str, automatic: bool) -> None:
    """One program: a member is interrupted, before and after another one joins; then it leaves."""
    group = world.new_name()
    attempts, rng = world.attempts, world.rng
    seen: dict[TopicPartition, set[int]] = {partition: set() for partition in world.partitions}

    async def join() -> Member:
        settings: dict[str, Any] = {"heartbeat_interval_ms": 20} if protocol == "classic" else {}
        consumer = await world.consumer(
            group,
            group_protocol=protocol,
            enable_auto_commit=automatic,
            auto_commit_interval_ms=20,
            max_poll_records=10,
            max_partition_fetch_bytes=100,
            **settings,
        )
        member = Member(world, consumer, seen)
        await attempts.plain(lambda: consumer.subscribe([world.topic], Listener(member)))
        return member

    first = await join()

    async def step_of_first() -> None:
        with suppress(Interrupted):
            match rng.randrange(4):
                case 0:
                    with suppress(KafkaError):  # of a commit during a rebalance
                        await attempts.attempt("commit of a member", lambda: first.consumer.commit())
                case _:
                    first.receive(await attempts.attempt("poll of a member", lambda: first.consumer.poll(30)))

    for _ in range(CALLS):
        await step_of_first()
    second = await join()
    for _ in range(CALLS):
        await step_of_first()
        second.receive(await attempts.plain(lambda: second.consumer.poll(10)))
    end = rng.choice(["close of a member", "unsubscribe of a member"])
    leave = first.consumer.close if end.startswith("close") else first.consumer.unsubscribe
    await attempts.tried(end, lambda: leave())
    await attempts.plain(lambda: first.consumer.close())
    for _ in range(STEPS_MAX):
        if all(len(offsets) == RECORDS for offsets in seen.values()):
            break
        second.receive(await attempts.plain(lambda: second.consumer.poll(50)))
    missing = {str(partition): RECORDS - len(offsets) for partition, offsets in seen.items()}
    assert not any(missing.values()), f"records that no member has received: {missing}"
    await attempts.plain(lambda: second.consumer.close())
