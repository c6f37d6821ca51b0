"""Shell: clients of one cluster for one test, which are closed together when the test ends.

    def test_orders(barnabas_clients, barnabas_topic):
        barnabas_clients.producer().send(barnabas_topic, b"hello")
        for record in barnabas_clients.consumer(barnabas_topic):
            ...

A consumer is in a group of its own and reads from the beginning, unless its settings say otherwise.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Unpack

from barnabas.client import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer

if TYPE_CHECKING:
    from barnabas.client import AdminSettings, ConsumerSettings, ProducerSettings


class BlockingClients:
    """Makes blocking clients, and closes them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._open = contextlib.ExitStack()

    def producer(self, **settings: Unpack[ProducerSettings]) -> Producer:
        """A producer. Records that failed without being noticed are an error at the end of the test."""
        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        return self._open.enter_context(Producer(**settings))

    def consumer(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> Consumer:
        """A consumer that has subscribed to the topics, if there are any."""
        consumer = self._open.enter_context(Consumer(**_with_defaults(settings, self.bootstrap_servers)))
        if topics:
            consumer.subscribe(topics)
        return consumer

    def admin(self, **settings: Unpack[AdminSettings]) -> Admin:
        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        return self._open.enter_context(Admin(**settings))

    def close(self) -> None:
        """Close all clients, the last one first. Raises the error of the first one that could not be closed."""
        self._open.close()


class AsyncClients:
    """Makes asyncio clients on the running event loop, and closes them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._open = contextlib.AsyncExitStack()

    def producer(self, **settings: Unpack[ProducerSettings]) -> AsyncProducer:
        """A producer. Records that failed without being noticed are an error at the end of the test."""
        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        producer = AsyncProducer(**settings)
        self._open.push_async_callback(producer.close)
        return producer

    def consumer(self, *topics: str, **settings: Unpack[ConsumerSettings]) -> AsyncConsumer:
        """A consumer that has subscribed to the topics, if there are any."""
        consumer = AsyncConsumer(**_with_defaults(settings, self.bootstrap_servers))
        self._open.push_async_callback(consumer.close)
        if topics:
            consumer.subscribe(topics)
        return consumer

    def admin(self, **settings: Unpack[AdminSettings]) -> AsyncAdmin:
        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        admin = AsyncAdmin(**settings)
        self._open.push_async_callback(admin.close)
        return admin

    async def close(self) -> None:
        """Close all clients, the last one first. Raises the error of the first one that could not be closed."""
        await self._open.aclose()


def _with_defaults(settings: ConsumerSettings, bootstrap_servers: str) -> ConsumerSettings:
    settings.setdefault("bootstrap_servers", bootstrap_servers)
    settings.setdefault("group_id", f"test-{uuid.uuid4().hex[:12]}")
    settings.setdefault("auto_offset_reset", "earliest")
    return settings
