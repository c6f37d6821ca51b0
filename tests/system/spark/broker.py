"""What these tests do to a broker, with librdkafka and with our own client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ForeignError
from confluent_kafka import TopicPartition as ForeignPartition

from barnabas.client.admin import AsyncAdmin
from barnabas.client.offsets import fetch_group_offsets, offsets_at
from barnabas.client.values import LATEST, IsolationLevel, NewTopic
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.spark.connection import LogClient


@dataclass(frozen=True)
class Record:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Topics:
    """A cluster's topics. Records are produced by librdkafka, so that no test compares our code only with itself."""

    def __init__(self, servers: str, client: LogClient) -> None:
        self._servers = servers
        self._client = client
        self._admin = AsyncAdmin(cluster=client.cluster)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        # The tests' records are as old as 1970 by their timestamps, and would be deleted at once.
        given = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, 1, given)
        for result in self._client.run(self._admin.create_topics([topic])).values():
            if isinstance(result, KafkaError):
                raise result

    def add_partitions(self, name: str, total: int) -> None:
        self._client.run(self._admin.create_partitions({name: total}))

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        self._client.run(self._admin.delete_records({TopicPartition(name, partition): offset}))

    def delete(self, name: str) -> None:
        self._client.run(self._admin.delete_topics([name]))

    def group_offsets(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        found = self._client.run(fetch_group_offsets(self._client.cluster, group))
        return {tp: (o.offset, o.metadata) for tp, o in found.items() if not isinstance(o, KafkaError)}

    def end(self, name: str, isolation: IsolationLevel) -> int:
        """The end of partition 0 for consumers with this isolation level."""
        tp = TopicPartition(name, 0)
        found = self._client.run(offsets_at(self._client.cluster, {tp: LATEST}, isolation=isolation))
        return found[tp]

    def produce(self, name: str, records: Iterable[Record], **settings: object) -> None:
        producer = self._producer(settings)
        self._send(producer, name, records)

    def has_transactions(self) -> bool:
        async def ask() -> bool:
            await self._client.cluster.refresh()
            connection = await self._client.cluster.connection(min(self._client.cluster.metadata.brokers))
            return connection.versions.serves(ApiKey.END_TXN)

        return self._client.run(ask())

    def transaction(self, name: str, records: Iterable[Record], *, commit: bool) -> None:
        end = self.open_transaction(name, records)
        end(commit)

    def open_transaction(self, name: str, records: Iterable[Record]) -> Callable[[bool], None]:
        """Write the records in a transaction. Returns what ends it: called with whether to commit."""
        producer = self._producer({"transactional.id": f"{name}-txn"})
        producer.init_transactions(30)
        producer.begin_transaction()
        self._send(producer, name, records)
        return lambda commit: producer.commit_transaction(30) if commit else producer.abort_transaction(30)

    def _producer(self, settings: Mapping[str, object]) -> Producer:
        return Producer(
            {"bootstrap.servers": self._servers, "linger.ms": 5, "message.max.bytes": 20_000_000}
            | {name.replace("_", "."): value for name, value in settings.items()}
        )

    @staticmethod
    def _send(producer: Producer, name: str, records: Iterable[Record]) -> None:
        failures: list[object] = []
        for record in records:
            producer.produce(
                name,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failures


def values(count: int, *, start: int = 0, partition: int = 0) -> list[Record]:
    """Records whose values are the decimal numbers from `start`."""
    return [Record(str(i).encode(), partition=partition, timestamp=1000 + i) for i in range(start, start + count)]


def committed(servers: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """The values that librdkafka reads with read_committed, up to the last stable offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "x",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[bytes | None] = []
    ended: set[int] = set()
    try:
        consumer.assign([ForeignPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        while len(ended) < partitions:
            message = consumer.poll(30)
            assert message is not None, "the consumer stalls"
            error = message.error()
            if error is None:
                found.append(message.value())
            elif error.code() == ForeignError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return found
