"""Shell: runs in a worker: creates topics that do not exist before the first record is written to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import PRODUCER_CONFIGS, resolve_config
from barnabas.client.options import ClusterConfig
from barnabas.client.values import NewTopic
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.connection import BlockingClient
from barnabas.spark.errors import SinkError
from barnabas.spark.sink.topic_creation import PREFIX, TopicCreation

log = logging.getLogger("barnabas.spark")


class TopicCreator(BlockingClient):
    """The connections of a worker process for the creation of topics, and the topics that are known to exist."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._settings = settings
        self._known: set[str] = set()
        self._cluster: Cluster = self.run(self._open())

    async def _open(self) -> Cluster:
        return Cluster(ClusterConfig.from_settings(resolve_config(PRODUCER_CONFIGS, self._settings, {})))

    async def disconnect(self) -> None:
        await self._cluster.close()

    def ensure(self, topic: str, creation: TopicCreation) -> None:
        """Create the topic if it does not exist. Raises SinkError and KafkaError."""
        if topic not in self._known:
            self.run(self._ensure(topic, creation))
            self._known.add(topic)

    async def _ensure(self, topic: str, creation: TopicCreation) -> None:
        view = (await self._cluster.topics([topic]))[topic]
        if view.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        group = creation.group_of(topic)
        new = NewTopic(topic, group.partitions, group.replication_factor, dict(group.configs))
        result = (await AsyncAdmin(cluster=self._cluster).create_topics([new]))[topic]
        if not isinstance(result, KafkaError):
            log.info("created the topic %s", topic)
        elif result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise SinkError(
                f"the topic {topic} does not exist and cannot be created: {result}. Create it, or change {PREFIX}*"
            ) from result
