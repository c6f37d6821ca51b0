"""Codec: Produce requests and responses by topic-partition; and the configs of the sender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.cluster.metadata import MetadataCache
from barnabas.client.config import is_given
from barnabas.client.options import Settings
from barnabas.core.buffers import Buffer
from barnabas.core.config import ConfigError
from barnabas.core.ids import NO_TOPIC_ID, TopicPartition
from barnabas.protocol.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NO_TOPIC_IDS_VERSION: Final = 12
"""The last version with topic names."""
COLUMNAR_BATCH_BYTES: Final = 1_000_000
"""The size of batches of columns, which may be larger than `batch.size`."""
COLUMNAR_BATCHES_AHEAD: Final = 2
"""The number of encoded batches of columns that wait for each partition; the next are encoded when these are sent."""


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """The configs of the producer's sender. Times are milliseconds (`_ms`) or seconds (`_s`)."""

    acks: int = -1
    idempotent: bool = True
    retries: int = 2_147_483_647
    in_flight_max: int = 5
    request_bytes_max: int = 1_048_576
    request_timeout_ms: int = 30_000
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    two_phase: bool = False
    metadata_max_age_s: float = 300.0
    availability_timeout_s: float = 0.0


def sender_config(settings: Settings, config: Mapping[str, object], keywords: Mapping[str, object]) -> SenderConfig:
    """Check and complete configs that depend on each other, by Kafka's rules
    (ProducerConfig.postProcessAndValidate)."""

    def given(name: str) -> bool:
        return is_given(name, config, keywords)

    acks = -1 if settings["acks"] in ("all", "-1") else int(settings["acks"])
    idempotent = bool(settings["enable.idempotence"])
    in_flight: int = settings["max.in.flight.requests.per.connection"]
    explicit = given("enable.idempotence")
    if settings["transactional.id"] is not None and not (idempotent and acks == -1):
        raise ConfigError("transactional.id needs enable.idempotence=true and acks=all.")
    if idempotent and (acks != -1 or settings["retries"] == 0 or in_flight > 5):
        if explicit:
            raise ConfigError(
                "enable.idempotence needs acks=all, retries above 0 and max.in.flight.requests.per.connection of at"
                " most 5. Change those, or set enable.idempotence=false."
            )
        idempotent = False
    if settings["transaction.two.phase.commit.enable"]:
        if settings["transactional.id"] is None:
            raise ConfigError("transaction.two.phase.commit.enable needs transactional.id.")
        if given("transaction.timeout.ms"):
            raise ConfigError(
                "transaction.timeout.ms does not go with transaction.two.phase.commit.enable: a prepared transaction"
                " waits for as long as it takes."
            )
    needed = settings["linger.ms"] + settings["request.timeout.ms"]
    if settings["delivery.timeout.ms"] < needed and given("delivery.timeout.ms"):
        raise ConfigError(
            f"delivery.timeout.ms ({settings['delivery.timeout.ms']}) must be at least linger.ms + request.timeout.ms"
            f" ({needed})."
        )
    return SenderConfig(
        acks=acks,
        idempotent=idempotent,
        retries=settings["retries"],
        in_flight_max=in_flight,
        request_bytes_max=settings["max.request.size"],
        request_timeout_ms=settings["request.timeout.ms"],
        transactional_id=settings["transactional.id"],
        transaction_timeout_ms=settings["transaction.timeout.ms"],
        two_phase=settings["transaction.two.phase.commit.enable"],
        metadata_max_age_s=settings["metadata.max.age.ms"] / 1000.0,
        availability_timeout_s=settings["partitioner.availability.timeout.ms"] / 1000.0,
    )


def build_produce(
    batches: Iterable[tuple[TopicPartition, Buffer]], metadata: MetadataCache, options: SenderConfig
) -> tuple[ProduceRequest, int | None]:
    """The request, and its highest possible version (None: any). The metadata of all topics must be known."""
    topics: dict[str, TopicProduceData] = {}
    max_version: int | None = None
    for partition, encoded in batches:
        topic = topics.get(partition.topic)
        if topic is None:
            topic_id = metadata.topics[partition.topic].topic_id
            if topic_id == NO_TOPIC_ID:
                max_version = NO_TOPIC_IDS_VERSION
            topic = topics[partition.topic] = TopicProduceData(name=partition.topic, topic_id=topic_id)
        topic.partition_data.append(PartitionProduceData(index=partition.partition, records=memoryview(encoded)))
    request = ProduceRequest(
        transactional_id=options.transactional_id,
        acks=options.acks,
        timeout_ms=options.request_timeout_ms,
        topic_data=list(topics.values()),
    )
    return request, max_version


def answers_of(response: ProduceResponse) -> dict[tuple[Any, int], PartitionProduceResponse]:
    """The results by (topic name or id, partition)."""
    return {
        (topic.name or topic.topic_id, answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }
