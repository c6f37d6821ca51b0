"""Shell: the `_schemas` topic of any Kafka cluster as the storage of a registry: compacted, with one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.options import ClusterConfig
from barnabas.client.single_writer.topic import (
    TopicLog,
    TopicLogError,
    TopicLogOptions,
    TopicLogReadOnlyError,
    TopicLogTimeoutError,
)
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.records import Record, decode_record, encode_record

DEFAULT_TOPIC: Final = "_schemas"


class _SchemaRecords:
    """The records of the registry as a `RecordCodec`."""

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        return decode_record(key, value)

    def encode(self, record: Record) -> tuple[bytes, bytes | None]:
        return encode_record(record)


class KafkaSchemaLog:
    """The `SchemaLog` on a Kafka topic. `settings` are client settings (bootstrap.servers, security settings, ...)."""

    def __init__(self, settings: Mapping[str, object], *, topic: str = DEFAULT_TOPIC, creates: bool = True) -> None:
        self.topic = topic
        self._cluster = Cluster(ClusterConfig.of(settings))
        options = TopicLogOptions(topic, f"schema-registry-{topic}", creates=creates)
        self._log: TopicLog[Record] = TopicLog(self._cluster, options, _SchemaRecords())

    async def open(self) -> None:
        """Create the topic if it does not exist and `creates` is set. Raises RegistryError if the topic's settings do
        not allow its use, or if there is no topic.
        """
        try:
            await self._log.open()
        except TopicLogError as error:
            raise _store_error(error) from error

    async def close(self) -> None:
        await self._log.close()
        await self._cluster.close()

    async def catch_up(self, apply: Callable[[Record], None]) -> None:
        await self._log.catch_up(apply)

    async def become_writer(self) -> bool:
        return await self._log.become_writer()

    async def append(self, records: Sequence[Record], apply: Callable[[Record], None]) -> None:
        try:
            await self._log.append(records, apply)
        except TopicLogError as error:
            raise _store_error(error) from error


def _store_error(error: TopicLogError) -> RegistryError:
    if isinstance(error, TopicLogReadOnlyError):
        return RegistryError(Code.OPERATION_NOT_PERMITTED, str(error))
    return RegistryError(
        Code.OPERATION_TIMEOUT if isinstance(error, TopicLogTimeoutError) else Code.STORE_ERROR, str(error)
    )
