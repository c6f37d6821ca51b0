"""Shell: describes groups of the streams protocol (KIP-1071), which Apache Kafka's brokers since 4.1 have.

Barnabas's brokers have no such groups. `groups` lists and deletes groups of all kinds, streams groups included.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from barnabas.client.admin.requests import Item, ask_coordinators
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.values import GroupState
from barnabas.core.errors import KafkaError
from barnabas.protocol.wire.messages import streams_group_describe as wire

Tasks = tuple[tuple[str, tuple[int, ...]], ...]
"""Subtopologies by name, each with the partitions of its tasks."""


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """The tasks of one member."""

    active: Tasks = ()
    standby: Tasks = ()
    warmup: Tasks = ()


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One instance of a Kafka Streams application; `process_id` is shared by the threads of a process."""

    member_id: str
    process_id: str
    client_id: str
    client_host: str
    member_epoch: int
    topology_epoch: int
    tasks: StreamsTasks
    target: StreamsTasks
    is_classic: bool


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group: its state, epochs and members, and the topics of its topology."""

    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    members: tuple[StreamsMember, ...]
    source_topics: frozenset[str]
    """The topics that the application reads and that it did not create."""
    internal_topics: frozenset[str]
    """The changelogs and repartition topics that the application created."""
    read_topics: frozenset[str]
    """The topics whose offsets the group commits: source topics and repartition topics."""
    coordinator: int = -1


async def describe_streams_groups(
    cluster: Cluster, group_ids: Iterable[str], *, deadline: float
) -> dict[str, StreamsGroupDescription | KafkaError]:
    """Describe streams groups. The error is GROUP_ID_NOT_FOUND for a group that is absent or of another protocol, and
    UNSUPPORTED_VERSION if the broker has no streams groups.
    """

    def build(part: list[str]) -> wire.StreamsGroupDescribeRequest:
        return wire.StreamsGroupDescribeRequest(group_ids=part)

    def parse(response: wire.StreamsGroupDescribeResponse) -> Iterable[Item[str, StreamsGroupDescription]]:
        for group in response.groups:
            yield group.group_id, group.error_code, group.error_message, _description(group)

    found = await ask_coordinators(cluster, group_ids, build, parse, what="Describing streams group", deadline=deadline)
    results: dict[str, StreamsGroupDescription | KafkaError] = {}
    for group_id, described in found.items():
        if isinstance(described, StreamsGroupDescription):
            broker_id = await cluster.coordinators.find(CoordinatorType.GROUP, group_id, deadline=deadline)
            described = replace(described, coordinator=broker_id)
        results[group_id] = described
    return results


def _description(group: wire.DescribedGroup) -> StreamsGroupDescription:
    parts = group.topology.subtopologies or [] if group.topology is not None else []
    repartition = {topic.name for part in parts for topic in part.repartition_source_topics}
    repartition |= {name for part in parts for name in part.repartition_sink_topics}
    changelogs = {topic.name for part in parts for topic in part.state_changelog_topics}
    sources = {name for part in parts for name in part.source_topics} - repartition
    return StreamsGroupDescription(
        group.group_id,
        GroupState.parse(group.group_state),
        group.group_epoch,
        group.assignment_epoch,
        tuple(_member(member) for member in group.members),
        frozenset(sources),
        frozenset((repartition | changelogs) - sources),
        frozenset(sources | repartition),
    )


def _member(member: wire.Member) -> StreamsMember:
    return StreamsMember(
        member.member_id,
        member.process_id,
        member.client_id,
        member.client_host,
        member.member_epoch,
        member.topology_epoch,
        _tasks(member.assignment),
        _tasks(member.target_assignment),
        member.is_classic,
    )


def _tasks(assignment: wire.Assignment) -> StreamsTasks:
    return StreamsTasks(*(_by_subtopology(getattr(assignment, f"{kind}_tasks")) for kind in _KINDS))


_KINDS = ("active", "standby", "warmup")


def _by_subtopology(tasks: list[wire.TaskIds]) -> Tasks:
    return tuple((task.subtopology_id, tuple(sorted(task.partitions))) for task in tasks)
