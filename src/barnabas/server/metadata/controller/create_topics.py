"""Machine: CreateTopics. Checks, errors and their order are those of Kafka's `ReplicationControlManager.createTopics`.

Each topic is created or rejected by itself. The records of a request are committed together; those of a request with
many topics are committed in parts (`ControllerService`). In a topic without a
manual assignment, -1 partitions means the controller's `num.partitions`, and a replication factor of -1
means the controller's `default.replication.factor`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec import Struct

from barnabas.core import work
from barnabas.core.config import value_to_text
from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import METADATA_TOPIC, TopicId
from barnabas.core.rng import random_uuid
from barnabas.protocol.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.server.metadata.config_rules import check_no_link_configs, check_topic_configs
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.configs.tables import TOPIC_CONFIGS
from barnabas.server.metadata.controller.answers import (
    RefusedError,
    check_mutation_quota,
    duplicates,
    invalid_request,
    message_of,
)
from barnabas.server.metadata.controller.assignments import (
    active_replicas,
    check_manual_replicas,
    in_sync_of_manual,
    new_partition,
    place,
)
from barnabas.server.metadata.controller.settings import MAX_PARTITIONS_PER_BATCH, ControllerConfig, DecideContext
from barnabas.server.metadata.controller.topic_names import (
    collision_key,
    has_collision_characters,
    name_problem,
)
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import ResourceType
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import ConfigRecord
from barnabas.server.metadata.records.topics import TopicRecord

_UNITS = 20
"""The units of work (`core/work`) of a topic with configs of its own, which take 0.3 ms to validate."""


class _Partition(Struct, frozen=True):
    replicas: Sequence[int]
    in_sync: Sequence[int]


class WholeRequest(Struct, frozen=True):
    """The facts that depend on all topics of a client's request. A decision may be about a part of the topics."""

    duplicates: Set[str]
    """The names that the request has more than once."""
    excess: RefusedError | None
    """The error of a request with too many partitions."""

    @classmethod
    def of(cls, request: CreateTopicsRequest, settings: ControllerConfig) -> WholeRequest:
        return cls(duplicates(topic.name for topic in request.topics), _excess(request, settings))


def decide_create_topics(
    image: ClusterImage, request: CreateTopicsRequest, ctx: DecideContext, whole: WholeRequest | None = None
) -> Decision[MetadataRecord, CreateTopicsResponse]:
    """The records of every valid topic; no records with `validate_only`. If `request` has only a part of the topics of
    a client's request, `whole` has the facts of all these topics."""
    whole = whole or WholeRequest.of(request, ctx.settings)
    names, configured = _Names(image), _Configs(image, ctx)
    work.count(len(request.topics) * _UNITS)
    records: list[MetadataRecord] = []
    results: dict[str, CreatableTopicResult] = {}
    for topic in request.topics:
        if topic.name in results:
            continue
        try:
            if topic.name in whole.duplicates:
                raise invalid_request("Duplicate topic name.")
            if whole.excess is not None:
                raise whole.excess
            names.check(topic.name)
            made, result = _create(image, topic, ctx, configured)
        except KafkaError as error:
            results[topic.name] = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=message_of(error)
            )
            continue
        records += made
        results[topic.name] = result
        names.take(topic.name)
    response = CreateTopicsResponse(topics=list(results.values()))
    return Decision(response, () if request.validate_only else records)


def _create(
    image: ClusterImage, topic: CreatableTopic, ctx: DecideContext, configured: _Configs
) -> tuple[list[MetadataRecord], CreatableTopicResult]:
    configs = _configs(topic)
    effective = configured.check(configs)
    partitions = _manual(image, topic) if topic.assignments else _placed(image, topic, ctx)
    check_mutation_quota(ctx.charge, len(partitions))
    topic_id: TopicId = random_uuid(ctx.rng)
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += [
        new_partition(image, topic_id, index, partition.replicas, partition.in_sync)
        for index, partition in enumerate(partitions)
    ]
    return records, CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=effective,
    )


class _Configs:
    """Validates the configs of new topics. Most topics of a request have the same ones, which are validated once."""

    def __init__(self, image: ClusterImage, ctx: DecideContext) -> None:
        self._view = ConfigView(image.configs, node_id=ctx.settings.node_id, static=ctx.settings.static_config)
        self._last: tuple[dict[str, str], list[CreatableTopicConfigs]] | None = None

    def check(self, configs: dict[str, str]) -> list[CreatableTopicConfigs]:
        """The effective configs. Raises ConfigError, or KafkaError."""
        if self._last is None or self._last[0] != configs:
            check_no_link_configs(configs)
            check_topic_configs(configs, self._view)
            self._last = configs, _effective(self._view, configs)
        return self._last[1]


class _Names:
    """The names that are in use: by topics of the image, and by new topics of this request."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._by_key: dict[str, str] | None = None

    def check(self, name: str) -> None:
        """Raises RefusedError for a name that is invalid, in use, or collides with one in use."""
        problem = name_problem(name)
        if problem is not None:
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")
        if name == METADATA_TOPIC:
            raise invalid_request(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        if name in self._image.topics:
            raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if has_collision_characters(name):
            other = self._colliding().get(collision_key(name))
            if other is not None:
                raise RefusedError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def take(self, name: str) -> None:
        if has_collision_characters(name):
            self._colliding()[collision_key(name)] = name

    def _colliding(self) -> dict[str, str]:
        """Collision key -> topic name. The dict is built for the first name of the request that contains a dot or an
        underscore, because only such names can collide."""
        if self._by_key is None:
            names = self._image.topics.by_name
            self._by_key = {collision_key(name): name for name in names if has_collision_characters(name)}
        return self._by_key


def _configs(topic: CreatableTopic) -> dict[str, str]:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(sorted(missing))}"
        )
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _manual(image: ClusterImage, topic: CreatableTopic) -> list[_Partition]:
    if topic.replication_factor != -1:
        raise invalid_request("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise invalid_request("A manual partition assignment was specified, but numPartitions was not set to -1.")
    found: dict[int, _Partition] = {}
    factor: int | None = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_manual_replicas(image, assignment.broker_ids, factor)
        factor = len(assignment.broker_ids)
        in_sync = in_sync_of_manual(image, assignment.broker_ids, index)
        found[index] = _Partition(assignment.broker_ids, in_sync)
    if sorted(found) != list(range(len(found))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [found[index] for index in range(len(found))]


def _placed(image: ClusterImage, topic: CreatableTopic, ctx: DecideContext) -> list[_Partition]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = _count(topic, ctx.settings)
    factor = ctx.settings.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
    try:
        placed = place(image, count, factor, ctx.rng)
    except KafkaError as error:
        raise RefusedError(error.code, f"Unable to replicate the partition {factor} time(s): {error}") from error
    return [_Partition(replicas, active_replicas(image, replicas)) for replicas in placed]


def _count(topic: CreatableTopic, settings: ControllerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions


def _excess(request: CreateTopicsRequest, settings: ControllerConfig) -> RefusedError | None:
    """The error of a request that creates more partitions than one batch of records may have; None if it does not."""
    total = sum(max(0, _count(topic, settings)) for topic in request.topics)
    if total <= MAX_PARTITIONS_PER_BATCH:
        return None
    return RefusedError(
        ErrorCode.POLICY_VIOLATION,
        f"Excessively large number of partitions per request: {total}. "
        f"Create at most {MAX_PARTITIONS_PER_BATCH} at once.",
    )


def _effective(view: ConfigView, configs: dict[str, str]) -> list[CreatableTopicConfigs]:
    """Every effective config of the new topic (KIP-525), by name."""
    shown = []
    for name, effective in sorted(view.new_topic(configs).items()):
        key = TOPIC_CONFIGS[name]
        if key.internal and name not in configs:
            continue
        shown.append(
            CreatableTopicConfigs(
                name=name,
                value=None if key.is_sensitive else value_to_text(effective.value),
                read_only=False,
                config_source=effective.source,
                is_sensitive=key.is_sensitive,
            )
        )
    return shown
