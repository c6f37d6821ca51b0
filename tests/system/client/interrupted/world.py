"""Shell: the topics and clients of the programs: asyncio clients, or blocking ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking import Admin, Consumer, ShareConsumer
from barnabas.client.blocking_producer import Producer
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from tests.system.client.interrupted.attempts import Attempts

PARTITIONS: Final = 3
RECORDS: Final = 300
"""The number of records of each partition of `World.topic`."""
JOBS: Final = 60
"""The number of records of each partition of `World.jobs`."""


@dataclass(frozen=True)
class Clients:
    """The classes of the clients."""

    admin: Any
    consumer: Any
    share_consumer: Any
    producer: Any


ASYNCIO: Final = Clients(AsyncAdmin, AsyncConsumer, AsyncShareConsumer, AsyncProducer)
BLOCKING: Final = Clients(Admin, Consumer, ShareConsumer, Producer)


class World:
    """What the programs of one test have in common."""

    def __init__(self, servers: str, clients: Clients, attempts: Attempts) -> None:
        self.servers = servers
        self.clients = clients
        self.attempts = attempts
        self.rng = attempts.rng
        self.admin: Any = None
        self._made: list[Any] = []
        """All clients, to close them when a program has failed."""
        run = uuid4().hex[:8]
        self.topic, self.jobs, self.written = (f"{kind}-{run}" for kind in ("records", "jobs", "written"))
        self._names = (f"group-{run}-{number}" for number in itertools.count())

    @property
    def is_blocking(self) -> bool:
        return self.clients is BLOCKING

    async def start(self) -> None:
        """Make the topics, and fill two of them."""
        plain = self.attempts.plain
        self.admin = await self._make(self.clients.admin)
        for name in (self.topic, self.jobs, self.written):
            await plain(lambda name=name: self.admin.create_topic(name, PARTITIONS, 1))
        producer = await self.producer(batch_size=200, linger_ms=1)
        for name, count in ((self.topic, RECORDS), (self.jobs, JOBS)):
            for number in range(count * PARTITIONS):
                value = b"%d" % (number // PARTITIONS)
                await plain(
                    lambda name=name, number=number, value=value: producer.send(
                        name, value, partition=number % PARTITIONS
                    )
                )
        await plain(producer.close)

    async def stop(self) -> None:
        """Delete the topics, and close all clients."""
        await self.attempts.plain(lambda: self.admin.delete_topics([self.topic, self.jobs, self.written]))
        for client in self._made:
            with suppress(KafkaError):  # the records of a client that has failed
                await self.attempts.plain(lambda client=client: client.close(timeout_ms=0))

    def new_name(self) -> str:
        """A new group.id or transactional.id."""
        return next(self._names)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(PARTITIONS)]

    async def administrator(self) -> Any:
        return await self._make(self.clients.admin)

    async def producer(self, **settings: Any) -> Any:
        return await self._make(self.clients.producer, **settings)

    async def _make(self, client: Any, **settings: Any) -> Any:
        made = await self.attempts.plain(lambda: client(bootstrap_servers=self.servers, **settings))
        self._made.append(made)
        return made

    async def consumer(self, group: str | None, **settings: Any) -> Any:
        given = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 20,
            **settings,
        }
        return await self._make(self.clients.consumer, **given)

    async def share_consumer(self, group: str, **settings: Any) -> Any:
        return await self._make(self.clients.share_consumer, group_id=group, fetch_max_wait_ms=20, **settings)

    async def new_share_group(self) -> str:
        """The name of a share group that begins with the first record."""
        group = self.new_name()
        changes = {ConfigResource.group(group): [ConfigChange("share.auto.offset.reset", "earliest")]}
        await self.attempts.plain(lambda: self.admin.incremental_alter_configs(changes))
        return group

    async def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offsets of a group, once no transaction holds them; None for a partition without one."""
        wanted = list(partitions)
        found = await self.attempts.plain(lambda: self.admin.list_group_offsets(group, wanted, require_stable=True))
        offsets: dict[TopicPartition, int | None] = {}
        for partition in wanted:
            answer = found.get(partition)
            if isinstance(answer, KafkaError):
                raise answer
            offsets[partition] = None if answer is None or answer.offset < 0 else answer.offset
        return offsets
