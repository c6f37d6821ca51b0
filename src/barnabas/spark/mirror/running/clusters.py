"""Shell: the clients of a pair: an admin client for each cluster, and producers of internal records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.producer.producer import AsyncProducer
from barnabas.spark.mirror.config.values import Clients, PairConfig

DELIVERY_TIMEOUT_MS: Final = 60_000
"""After this time an internal record counts as failed, and its job is repeated."""
_NOT_FOR_RECORDS: Final = ("transactional.id", "transaction.timeout.ms", "transaction.two.phase.commit.enable")
Record = tuple[bytes, bytes | None]


class ClusterClients:
    """The clients of one cluster of a pair."""

    def __init__(self, alias: str, clients: Clients, admin_timeout_ms: int) -> None:
        self.alias = alias
        self._clients = clients
        self.admin = AsyncAdmin({"default.api.timeout.ms": admin_timeout_ms, **clients.admin})
        self._producer: AsyncProducer | None = None

    @property
    def cluster(self) -> Cluster:
        return self.admin.cluster

    async def broker_count(self) -> int:
        return len((await self.admin.describe_cluster()).brokers)

    async def write(self, topic: str, records: Sequence[Record]) -> None:
        """Write records into partition 0 of a topic, and wait until they are acknowledged. Raises KafkaError."""
        producer = self._producer
        if producer is None:
            producer = self._producer = AsyncProducer(_plain_producer(self._clients.producer))
        futures = [await producer.send(topic, value, key=key, partition=0) for key, value in records]
        for future in futures:
            await future

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()
        await self.admin.close()


def _plain_producer(settings: Mapping[str, str]) -> dict[str, object]:
    kept = {name: text for name, text in settings.items() if name not in _NOT_FOR_RECORDS}
    return {"delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "linger.ms": 5, **kept}


class PairClients:
    """The clients of both clusters of a pair: `async with PairClients(config) as clients: ...`."""

    def __init__(self, config: PairConfig) -> None:
        self.source = ClusterClients(config.source, config.source_clients, config.admin_timeout_ms)
        self.target = ClusterClients(config.target, config.target_clients, config.admin_timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.source.close()
        finally:
            await self.target.close()

    def having_syncs(self, config: PairConfig) -> ClusterClients:
        """The cluster that has the offset syncs of this pair."""
        return self.source if config.offset_syncs_in_source else self.target
