"""Value: the settings of tiered storage that are no broker configs: the object store, and the topic of remote segments.

Their names begin with `remote.log.storage.manager.impl.prefix` (`rsm.config.`) and
`remote.log.metadata.manager.impl.prefix` (`rlmm.config.`), as those of Kafka's plug-ins. Without settings, the topic
has Kafka's 50 partitions, and as many replicas as the topic of consumer offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.server.node.config import NodeConfig

PARTITIONS: Final = "remote.log.metadata.topic.num.partitions"
REPLICAS: Final = "remote.log.metadata.topic.replication.factor"
MIN_ISR: Final = "remote.log.metadata.topic.min.isr"
RETENTION_MS: Final = "remote.log.metadata.topic.retention.ms"
_OF_KAFKA: Final = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"


class MetadataTopicSettings(Struct, frozen=True):
    """How `__remote_log_metadata` is created."""

    partitions: int
    replication_factor: int
    min_insync_replicas: int
    retention_ms: int


class TieredSettings(Struct, frozen=True):
    """The settings of one broker."""

    store: Mapping[str, str]
    """The settings of the object store, without their prefix."""
    store_prefix: str
    topic: MetadataTopicSettings


def read_settings(config: NodeConfig) -> TieredSettings:
    """The settings in a node's configuration. Raises ConfigError; the message has the fix."""
    name = "remote.log.storage.manager.class.name"
    if config[name]:
        raise ConfigError(
            f"{name}={config[name]}: Barnabas has object stores of its own and runs no plug-ins. Remove the config, "
            "and set rsm.config.storage.root or rsm.config.storage.s3.bucket.name."
        )
    name = "remote.log.metadata.manager.class.name"
    if config[name] != _OF_KAFKA:
        raise ConfigError(f"{name}={config[name]}: Barnabas keeps this metadata in a topic only. Remove the config.")
    prefix: str = config["remote.log.storage.manager.impl.prefix"]
    of_topic = _with_prefix(config.given, config["remote.log.metadata.manager.impl.prefix"])
    replicas = int(config["offsets.topic.replication.factor"])
    count = _number(of_topic, REPLICAS, replicas, 1)
    topic = MetadataTopicSettings(
        _number(of_topic, PARTITIONS, 50, 1),
        count,
        _number(of_topic, MIN_ISR, min(2, count), 1),
        _number(of_topic, RETENTION_MS, -1, -1),
    )
    return TieredSettings(_with_prefix(config.given, prefix), prefix, topic)


def _with_prefix(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): text.strip() for name, text in given.items() if name.startswith(prefix)}


def _number(texts: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = texts.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(f"rlmm.config.{name}={text}: the value must be an integer of {least} or more.")
    return value
