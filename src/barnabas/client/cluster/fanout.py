"""Shell: one question about many partitions, put to their leaders side by side, retried partition by partition.

The pattern behind ListOffsets, DeleteRecords and OffsetForLeaderEpoch: group the partitions by leader, ask every leader
once, keep what was answered, refresh the metadata and ask again for what failed with a retriable error, until the
deadline.
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
"""How often a partition that nobody knows is asked for again: it may just have been created."""

Answer = tuple[TopicPartition, int, A]
"""A partition, its error code, and its answer."""


async def ask_leaders(
    cluster: Cluster,
    questions: Mapping[TopicPartition, Q],
    build: Callable[[dict[TopicPartition, Q]], Any],
    parse: Callable[[Any], Iterable[Answer[A]]],
    *,
    what: str,
    deadline: float,
) -> dict[TopicPartition, A | KafkaError]:
    """The answer for every partition, or the error that remained. Never raises for a single partition."""
    results: dict[TopicPartition, A | KafkaError] = {}
    open_questions = dict(questions)
    attempt = 0
    while open_questions:
        failed: dict[TopicPartition, KafkaError]
        try:
            groups, failed = await _group_by_leader(cluster, open_questions, deadline)
        except KafkaError as unreachable:
            results.update(dict.fromkeys(open_questions, unreachable))
            break

        async def ask(broker_id: int, part: dict[TopicPartition, Q], failed: dict[TopicPartition, KafkaError]) -> None:
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
                failed[partition] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: no answer for {partition}.")

        await asyncio.gather(*(ask(broker_id, part, failed) for broker_id, part in groups.items()))
        for partition, error in list(failed.items()):
            cluster.note_error(partition, error.code)
            unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and attempt >= UNKNOWN_RETRIES
            if unknown or not error.retriable:
                results[partition] = error
                del failed[partition]
        open_questions = {partition: open_questions[partition] for partition in failed}
        if not open_questions:
            break
        if cluster.now() >= deadline:
            for partition, error in failed.items():
                results[partition] = _timed_out(what, partition, error)
            break
        await cluster.backoff(attempt, deadline)
        attempt += 1
    return results


async def _group_by_leader(
    cluster: Cluster, questions: Mapping[TopicPartition, Q], deadline: float
) -> tuple[dict[int, dict[TopicPartition, Q]], dict[TopicPartition, KafkaError]]:
    """Partitions by leader, and those that have none with the reason."""
    views = await cluster.topics({partition.topic for partition in questions}, deadline=deadline)
    groups: dict[int, dict[TopicPartition, Q]] = {}
    unplaced: dict[TopicPartition, KafkaError] = {}
    for partition, question in questions.items():
        view = views[partition.topic]
        if view.error is not ErrorCode.NONE:
            unplaced[partition] = KafkaError(view.error, f"Topic {partition.topic!r}: {view.error.message}")
        elif not 0 <= partition.partition < len(view.partitions):
            unplaced[partition] = KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"There is no partition {partition}: the topic has {len(view.partitions)} partitions.",
            )
        elif view.partitions[partition.partition].leader not in cluster.metadata.brokers:
            unplaced[partition] = KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment."
            )
        else:
            groups.setdefault(view.partitions[partition.partition].leader, {})[partition] = question
    return groups, unplaced


def _timed_out(what: str, partition: TopicPartition, error: KafkaError) -> KafkaError:
    if isinstance(error, RequestTimeoutError):
        return error
    return KafkaError(error.code, f"{what} of {partition} did not succeed in time; the last error was: {error}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic, both in the order given."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics
