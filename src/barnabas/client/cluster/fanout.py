"""Shell: one kind of request for many partitions, sent to their leaders concurrently, with retries per partition.

This is the pattern of ListOffsets and DeleteRecords, for example: group the partitions by leader, send one request to
each leader, and collect the results. Partitions that failed with a retriable error are sent again, with fresh
metadata, until the deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.errors import RequestTimeoutError
from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition

Q = TypeVar("Q")
A = TypeVar("A")

UNKNOWN_RETRIES: Final = 3
"""The number of retries after UNKNOWN_TOPIC_OR_PARTITION: the topic may have been created a moment ago."""

LeaderResult = tuple[TopicPartition, int, A]
"""A partition, its error code, and its result."""


async def send_to_leaders(
    cluster: Cluster,
    arguments: Mapping[TopicPartition, Q],
    build: Callable[[dict[TopicPartition, Q]], Any],
    parse: Callable[[Any], Iterable[LeaderResult[A]]],
    *,
    what: str,
    deadline: float,
) -> dict[TopicPartition, A | KafkaError]:
    """Send a request for all partitions to their leaders. Returns the result of every partition, or its last error.

    `arguments` has what to request for each partition. `build` makes the request for one leader from a part of the
    arguments. `parse` reads the results of the partitions from a response. `what` names the call in error messages.
    """
    results: dict[TopicPartition, A | KafkaError] = {}
    remaining = dict(arguments)
    attempt = 0
    while remaining:
        failed: dict[TopicPartition, KafkaError]
        try:
            groups, failed = await _group_by_leader(cluster, remaining, deadline)
        except KafkaError as unreachable:
            results.update(dict.fromkeys(remaining, unreachable))
            break

        async def send(broker_id: int, part: dict[TopicPartition, Q], failed: dict[TopicPartition, KafkaError]) -> None:
            try:
                response = await cluster.send(broker_id, build(part), deadline=deadline)
            except KafkaError as lost:
                failed.update(dict.fromkeys(part, lost))
                return
            answered = set()
            for partition, code, answer in parse(response):
                answered.add(partition)
                if code == 0:
                    results[partition] = answer
                else:
                    error = error_code(code)
                    failed[partition] = KafkaError(error, f"{what} of {partition}: {error.message}")
            for partition in part.keys() - answered:
                failed[partition] = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the response lacks {partition}."
                )

        await asyncio.gather(*(send(broker_id, part, failed) for broker_id, part in groups.items()))
        for partition, error in list(failed.items()):
            cluster.note_error(partition, error.code)
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and attempt >= UNKNOWN_RETRIES
            if unknown or not error.retriable:
                results[partition] = error
                del failed[partition]
        remaining = {partition: remaining[partition] for partition in failed}
        if not remaining:
            break
        if cluster.now() >= deadline:
            for partition, error in failed.items():
                results[partition] = _timed_out(what, partition, error)
            break
        await cluster.backoff(attempt, deadline)
        attempt += 1
    return results


async def _group_by_leader(
    cluster: Cluster, arguments: Mapping[TopicPartition, Q], deadline: float
) -> tuple[dict[int, dict[TopicPartition, Q]], dict[TopicPartition, KafkaError]]:
    """The partitions by leader, and the partitions without a known leader, each with its error."""
    views = await cluster.topics({partition.topic for partition in arguments}, deadline=deadline)
    groups: dict[int, dict[TopicPartition, Q]] = {}
    without_leader: dict[TopicPartition, KafkaError] = {}
    for partition, argument in arguments.items():
        view = views[partition.topic]
        if view.error is not ErrorCode.NONE:
            without_leader[partition] = KafkaError(view.error, f"Topic {partition.topic!r}: {view.error.message}")
        elif not 0 <= partition.partition < len(view.partitions):
            without_leader[partition] = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition}: the topic has {len(view.partitions)} partitions.",
            )
        elif view.partitions[partition.partition].leader not in cluster.metadata.brokers:
            without_leader[partition] = KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment."
            )
        else:
            groups.setdefault(view.partitions[partition.partition].leader, {})[partition] = argument
    return groups, without_leader


def _timed_out(what: str, partition: TopicPartition, error: KafkaError) -> KafkaError:
    if isinstance(error, RequestTimeoutError):
        return error
    return KafkaError(error.code, f"{what} of {partition} did not succeed in time; the last error was: {error}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition indexes by topic, both in the given order."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
