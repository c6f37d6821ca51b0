"""The production group coordinator on a partition in memory, and the clients that send requests to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.core.errors import KafkaError
from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.group.shard import FORMAT
from tests.configs import group_coordinator_config
from tests.golden.coordination.show import show_record
from tests.unit.server.coordination.kit import Catalog, LoopClock, MemoryWriter, check_committed_views, seeded

TP = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class Stage:
    """A coordinator and its clients."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {
            "group_initial_rebalance_delay_ms": 0,
            "group_consumer_assignment_interval_ms": 0,
            "group_consumer_regex_refresh_interval_ms": 600_000,
        }
        self.catalog = Catalog(t=4, u=2, v=1)
        self.writer = MemoryWriter()
        self.rng = seeded()
        self.epoch = 0
        self.seen = 0
        self.members: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        self.generations: dict[str, int] = {}
        self.events: list[str] = []
        self.calls: set[asyncio.Task[None]] = set()
        self.coordinator: GroupCoordinator | None = None
        self.owner: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stage:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in (*self.calls, *([self.owner] if self.owner else [])):
            task.cancel()
        await asyncio.gather(*self.calls, *([self.owner] if self.owner else []), return_exceptions=True)

    async def start(self) -> GroupCoordinator:
        if self.coordinator is None:
            config = group_coordinator_config(**self.settings)
            self.coordinator = GroupCoordinator(config, self.writer, self.catalog, LoopClock(), self.rng)
            self.coordinator.on_partition_count(1)
            self.owner = asyncio.get_running_loop().create_task(self.coordinator.run())
            await settle()
            self.elect()
            await settle()
        return self.coordinator

    def elect(self) -> None:
        assert self.coordinator is not None
        self.writer[TP].leader = True
        self.coordinator.on_elected(0, self.epoch)
        self.epoch += 1

    def take_events(self) -> list[str]:
        """Responses, then records."""
        if self.coordinator is not None:
            check_committed_views(self.writer, self.coordinator._runtime)
        for record in self.writer.records(TP, self.seen):
            self.events.append("log: " + show_record(FORMAT.decode(record)))
        self.seen = self.writer[TP].end
        taken, self.events = [self.rename(event) for event in self.events], []
        return taken

    def rename(self, text: str) -> str:
        for name, member_id in sorted(self.members.items(), key=lambda item: -len(item[1])):
            if member_id:
                text = text.replace(member_id, f"@{name}")
        return UUID_TEXT.sub("<uuid>", text)

    def member(self, name: str) -> str:
        return self.members.get(name[1:], "") if name.startswith("@") else name

    def call(self, name: str, awaitable: Awaitable[Any], show: Callable[[Any], str]) -> None:
        async def answered() -> None:
            try:
                response = await awaitable
                self.events.append(self.rename(f"{name}: {show(response)}"))
            except KafkaError as error:
                self.events.append(f"{name}: raised {error.code.name}")

        task = asyncio.get_running_loop().create_task(answered())
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)


async def settle() -> None:
    """Run all tasks that are ready, without advancing the time."""
    for _ in range(20):
        await asyncio.sleep(0)
