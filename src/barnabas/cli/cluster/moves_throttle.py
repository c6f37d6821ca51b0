"""Shell: replication throttles for moves of replicas, set and removed as kafka-reassign-partitions does (KIP-73)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.cli.output import note
from barnabas.cli.session import ANSWER_TIMEOUT_MS, answer_of
from barnabas.client.explanations.words import counted
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.values import ConfigChange, ConfigResource

Changes = dict["ConfigResource", list["ConfigChange"]]

ALL: Final = "*"
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"


@dataclass(frozen=True, slots=True)
class Throttled:
    """Value: the topics and brokers whose configs were changed."""

    topics: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()


@asynccontextmanager
async def throttled(
    admin: AsyncAdmin,
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int | None,
    *,
    remover: str,
) -> AsyncIterator[Throttled]:
    """An async context manager whose block submits the reassignments `planned`.

    It yields the topics and brokers whose configs it has changed.

    Before the block, replication is limited to `bytes_per_second` on each broker, for the leaders that send and the
    followers that fetch; None sets no limit. If a reassignment is rejected, or the block ends with an exception, the
    previous configs are restored. Reassignments that have nevertheless begun keep the throttle; `remover` is the
    command that removes it.

    Reassignments that were already under way are throttled as well, as in Kafka: a topic has one list of throttled
    replicas for all its partitions, and a broker has one rate. `current` has the replicas before these reassignments;
    for a partition that is already being reassigned, the replicas that the cluster reports are used instead.
    """
    if bytes_per_second is None:
        yield Throttled()
        return
    before = await admin.list_partition_reassignments()
    changes = _throttle_changes(current, planned, before, bytes_per_second)
    undoing = await _inverse_changes(admin, changes, {broker for move in before.values() for broker in move.replicas})
    touched = _changed_resources(changes)
    try:
        await _apply(admin, changes)
        yield touched
    except BaseException:  # Ctrl-C, too: a throttle that no move needs must be removed
        try:
            under_way = await admin.list_partition_reassignments(planned)
            if begun := [tp for tp, move in under_way.items() if move != before.get(tp)]:
                await clear_throttle(admin, touched.topics, touched.brokers)
                known = f"{len(begun)} of {counted(len(planned), 'move')}"
                note(f"{known} have begun and keep the throttle; {remover} removes it")
            else:
                await _apply(admin, undoing)
        except BarnabasError as error:
            note(f"the throttle may still be set ({error}); {remover} removes it")
        raise


def _throttle_changes(
    current: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    under_way: Mapping[TopicPartition, Reassignment],
    bytes_per_second: int,
) -> Changes:
    """The config changes for the planned reassignments and those under way."""
    from barnabas.client.values import ConfigChange, ConfigResource

    sending: dict[str, list[str]] = defaultdict(list)
    taking: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for tp in sorted({*under_way, *planned}):
        before = under_way[tp].original if tp in under_way else current.get(tp, ())
        target = planned[tp] if tp in planned else under_way[tp].target
        sending[tp.topic] += [f"{tp.partition}:{broker}" for broker in sorted(before)]
        taking[tp.topic] += [f"{tp.partition}:{broker}" for broker in sorted({*target} - {*before})]
        brokers.update(before, target)
    changes = {}
    for topic in sorted(sending):
        changes[ConfigResource.topic(topic)] = [
            ConfigChange(LEADERS, ",".join(sending[topic])),
            ConfigChange(FOLLOWERS, ",".join(taking[topic])),
        ]
    for broker in sorted(brokers):
        changes[ConfigResource.broker(broker)] = [ConfigChange(name, str(bytes_per_second)) for name in RATES]
    return changes


async def _inverse_changes(admin: AsyncAdmin, changes: Changes, busy: Collection[int]) -> Changes:
    """The config changes that restore the present values.

    A broker that is down cannot be described: its rates are removed, or, if it is one of `busy`, keep the new values.
    """
    from barnabas.client.values import AlterOp, ConfigChange, ConfigResource

    touched = _changed_resources(changes)
    lists = await _read_lists(admin, touched.topics)
    now: dict[ConfigResource, dict[str, str]] = {ConfigResource.topic(topic): own for topic, own in lists.items()}
    results = await asyncio.gather(*(_read_rates(admin, broker) for broker in touched.brokers))
    for broker, rates in zip(touched.brokers, results, strict=True):
        if rates is not None or broker not in busy:
            now[ConfigResource.broker(broker)] = rates or {}
    return {
        resource: [
            ConfigChange(change.name, own[change.name])
            if own.get(change.name)
            else ConfigChange(change.name, None, AlterOp.DELETE)
            for change in changes[resource]
        ]
        for resource, own in now.items()
    }


async def _read_rates(admin: AsyncAdmin, broker_id: int) -> dict[str, str] | None:
    """The rates that are set on one broker; None if the broker does not answer. Only the broker itself can describe
    them.
    """
    from barnabas.client.values import ConfigResource, ConfigSource

    resource = ConfigResource.broker(broker_id)
    result = await answer_of(admin.describe_configs([resource], names=RATES, timeout_ms=ANSWER_TIMEOUT_MS))
    if result is None:
        return None
    found = result[resource]
    if isinstance(found, KafkaError):
        raise found
    return {name: entry.value or "" for name, entry in found.items() if entry.source is ConfigSource.DYNAMIC_BROKER}


def _changed_resources(changes: Changes) -> Throttled:
    from barnabas.client.values import ConfigResourceType

    topics = tuple(resource.name for resource in changes if resource.type is ConfigResourceType.TOPIC)
    return Throttled(topics, tuple(int(r.name) for r in changes if r.type is ConfigResourceType.BROKER))


@dataclass(frozen=True, slots=True)
class Cleared:
    """Value: the topics and brokers whose throttle was removed, and whether reassignments under way still need a
    throttle.
    """

    topics: tuple[str, ...]
    brokers: tuple[int, ...]
    is_rest_needed: bool


async def clear_throttle(
    admin: AsyncAdmin, topics: Iterable[str], brokers: Iterable[int] = (), *, also: Sequence[str] = ()
) -> Cleared:
    """Remove the throttle of finished reassignments.

    Removed are the lists of throttled replicas of `topics`, and the rates of running brokers, of brokers that the lists
    name, and of `brokers`. `also` names further configs of these brokers to remove. Lists and rates that reassignments
    under way need are kept.
    """
    from barnabas.client.values import AlterOp, ConfigChange, ConfigResource

    moving: dict[str, dict[int, Reassignment]] = defaultdict(dict)
    for tp, move in (await admin.list_partition_reassignments()).items():
        moving[tp.topic][tp.partition] = move
    named = {broker.broker_id for broker in (await admin.describe_cluster()).brokers} | set(brokers)
    needed: set[int] = set()
    mine = sorted(set(topics))
    changes: Changes = {}
    for topic, lists in (await _read_lists(admin, {*mine, *moving})).items():
        for name, text in lists.items():
            kept = sorted(_of_reassigned(text, moving.get(topic, {})))
            needed |= {broker for _, broker in kept}
            if topic in mine:
                named |= {broker for _, broker in _listed(text)}
                value = ",".join(f"{partition}:{broker}" for partition, broker in kept)
                change = ConfigChange(name, value) if kept else ConfigChange(name, None, AlterOp.DELETE)
                changes.setdefault(ConfigResource.topic(topic), []).append(change)
    for broker in sorted(named):
        names = (*(() if broker in needed else RATES), *also)
        if names:
            changes[ConfigResource.broker(broker)] = [ConfigChange(name, None, AlterOp.DELETE) for name in names]
    await _apply(admin, changes)
    return Cleared(tuple(mine), tuple(sorted(named - needed)), bool(needed))


async def read_throttled_topics(admin: AsyncAdmin) -> list[str]:
    """The topics that have lists of throttled replicas. A list `*` is left out: an administrator has set it, not a
    reassignment.
    """
    names = [listing.name for listing in await admin.list_topics(include_internal=True)]
    lists = await _read_lists(admin, names, may_hide=True)
    return [topic for topic, own in lists.items() if any(_listed(text) for text in own.values())]


async def _read_lists(admin: AsyncAdmin, topics: Iterable[str], *, may_hide: bool = False) -> dict[str, dict[str, str]]:
    """Topic -> config name -> value, "" if the config is not set. Leaves out deleted topics and, with `may_hide`,
    topics whose configs this client is not authorized to describe.
    """
    from barnabas.client.values import ConfigResource, ConfigSource

    resources = [ConfigResource.topic(topic) for topic in sorted(topics)]
    lists: dict[str, dict[str, str]] = {}
    for resource, found in (await admin.describe_configs(resources, names=(LEADERS, FOLLOWERS))).items():
        if isinstance(found, KafkaError):
            if found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if may_hide and found.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                continue
            raise found
        own = {name: entry.value or "" for name, entry in found.items() if entry.source is ConfigSource.TOPIC}
        lists[resource.name] = {LEADERS: "", FOLLOWERS: ""} | own
    return lists


def _listed(text: str) -> set[tuple[int, int]]:
    """(partition, broker) of each replica that a topic's list of throttled replicas names one by one; none for `*`."""
    pairs = [part.strip().partition(":") for part in text.split(",")]
    return {(int(index), int(broker)) for index, _, broker in pairs if index.isdecimal() and broker.isdecimal()}


def _of_reassigned(text: str, moves: Mapping[int, Reassignment]) -> set[tuple[int, int]]:
    """The replicas in a topic's list of throttled replicas whose partitions are being reassigned; `*` lists all."""
    if text.strip() == ALL:
        return {(index, broker) for index, move in moves.items() for broker in move.replicas}
    return {(index, broker) for index, broker in _listed(text) if index in moves}


async def _apply(admin: AsyncAdmin, changes: Changes) -> None:
    """Apply the changes. Changes of a broker that is not registered any more are skipped: they are impossible, and
    such a broker replicates nothing.
    """
    for error in (await admin.incremental_alter_configs(changes)).values():
        if error is not None and error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise error
