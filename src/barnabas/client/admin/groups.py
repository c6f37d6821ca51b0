"""Shell: groups: list, describe, delete; their offsets: list, alter, delete, reset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from barnabas.client.admin.requests import Item, ask_coordinators, item_error, value_or_raise
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.cluster.fanout import by_topic
from barnabas.client.cluster.versions import Versioned
from barnabas.client.membership.subscriptions import decode_assignment, decode_subscription
from barnabas.client.offsets import commit_group_offsets, fetch_group_offsets, list_offsets
from barnabas.client.values import (
    LATEST,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    OffsetAndMetadata,
)
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import consumer_group_describe as consumer
from barnabas.protocol.wire.messages import describe_groups as classic
from barnabas.protocol.wire.messages import share_group_describe as share
from barnabas.protocol.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)


async def list_groups(
    cluster: Cluster, *, states: Iterable[str], types: Iterable[str], deadline: float
) -> list[GroupListing]:
    """List the groups of all brokers, because each broker has only the groups that it coordinates."""
    wanted_states, wanted_types = list(states), list(types)
    await cluster.refresh(deadline=deadline)

    def build(version: int) -> ListGroupsRequest:
        return ListGroupsRequest(
            states_filter=wanted_states if version >= 4 else [], types_filter=wanted_types if version >= 5 else []
        )

    async def ask(broker_id: int) -> list[GroupListing]:
        async def attempt() -> list[GroupListing]:
            request = Versioned(ApiKey.LIST_GROUPS, build)
            response: ListGroupsResponse = await cluster.send(broker_id, request, deadline=deadline)
            if response.error_code:
                raise item_error(response.error_code, None, f"Listing groups of broker {broker_id}")
            return [
                GroupListing(g.group_id, g.protocol_type, GroupState.parse(g.group_state), g.group_type.lower())
                for g in response.groups
            ]

        found: list[GroupListing] = await cluster.retrying("Listing groups", attempt, deadline=deadline)
        return found

    parts = await asyncio.gather(*(ask(broker_id) for broker_id in sorted(cluster.metadata.brokers)))
    unique = {group.group_id: group for part in parts for group in part}
    return [unique[group_id] for group_id in sorted(unique)]


async def describe_groups(
    cluster: Cluster, group_ids: Iterable[str], *, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    """Describe groups as KIP-848 groups first, then as share groups, then as classic ones, in the order of Kafka's
    tool."""
    wanted = list(dict.fromkeys(group_ids))
    results = await _describe_new(cluster, wanted, consumer, "consumer", deadline)
    left = [g for g in wanted if _not_that_kind(results[g])]
    results.update(await _describe_classic(cluster, left, deadline))
    left = [g for g in left if _not_that_kind(results[g]) or _is_dead(results[g])]
    found = await _describe_new(cluster, left, share, "share", deadline)
    results.update({g: described for g, described in found.items() if isinstance(described, GroupDescription)})
    return {g: results[g] for g in wanted}


def _not_that_kind(result: object) -> bool:
    return isinstance(result, KafkaError) and result.code in (
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNSUPPORTED_VERSION,
    )


def _is_dead(result: object) -> bool:
    return isinstance(result, GroupDescription) and result.state is GroupState.DEAD


async def _describe_new(
    cluster: Cluster, group_ids: list[str], kind: Any, name: str, deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    request_type = kind.ConsumerGroupDescribeRequest if kind is consumer else kind.ShareGroupDescribeRequest

    def build(part: list[str]) -> Any:
        return request_type(group_ids=part)

    def parse(response: Any) -> Iterable[Item[str, GroupDescription]]:
        for group in response.groups:
            members = tuple(_new_member(member, kind) for member in group.members)
            described = GroupDescription(
                group.group_id,
                name,
                name,
                GroupState.parse(group.group_state),
                group.assignor_name,
                members,
                -1,
                group.group_epoch,
                group.assignment_epoch,
            )
            yield group.group_id, group.error_code, group.error_message, described

    found = await ask_coordinators(cluster, group_ids, build, parse, what=f"Describing {name} group", deadline=deadline)
    return await _with_coordinator(cluster, found, deadline)


def _new_member(member: Any, kind: Any) -> MemberDescription:
    target = _partitions(member.target_assignment) if kind is consumer else None
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.instance_id if kind is consumer else None,
        _partitions(member.assignment),
        target,
        member.member_epoch,
        tuple(member.subscribed_topic_names),
        member.rack_id,
    )


def _partitions(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


async def _describe_classic(
    cluster: Cluster, group_ids: list[str], deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    def build(part: list[str]) -> classic.DescribeGroupsRequest:
        return classic.DescribeGroupsRequest(groups=part)

    def parse(response: classic.DescribeGroupsResponse) -> Iterable[Item[str, GroupDescription]]:
        for group in response.groups:
            described = GroupDescription(
                group.group_id,
                "classic",
                group.protocol_type,
                GroupState.parse(group.group_state),
                group.protocol_data,
                tuple(_classic_member(member, group.protocol_type) for member in group.members),
                -1,
            )
            yield group.group_id, group.error_code, group.error_message, described

    found = await ask_coordinators(cluster, group_ids, build, parse, what="Describing group", deadline=deadline)
    return await _with_coordinator(cluster, found, deadline)


def _classic_member(member: classic.DescribedGroupMember, protocol_type: str) -> MemberDescription:
    assigned: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    if protocol_type == "consumer":
        try:
            assigned = frozenset(decode_assignment(member.member_assignment))
            topics = decode_subscription(member.member_metadata).topics if member.member_metadata else ()
        except BarnabasError:
            pass  # not a consumer's assignment: another kind of client uses the group protocol
    return MemberDescription(
        member.member_id,
        member.client_id,
        member.client_host,
        member.group_instance_id,
        assigned,
        subscribed_topics=topics,
    )


async def _with_coordinator(
    cluster: Cluster, found: dict[str, GroupDescription | KafkaError], deadline: float
) -> dict[str, GroupDescription | KafkaError]:
    results: dict[str, GroupDescription | KafkaError] = {}
    for group_id, described in found.items():
        if isinstance(described, GroupDescription):
            broker_id = await cluster.coordinators.find(CoordinatorType.GROUP, group_id, deadline=deadline)
            described = replace(described, coordinator=broker_id)
        results[group_id] = described
    return results


async def delete_groups(cluster: Cluster, group_ids: Iterable[str], *, deadline: float) -> dict[str, KafkaError | None]:
    def build(part: list[str]) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=part)

    def parse(response: DeleteGroupsResponse) -> Iterable[Item[str, None]]:
        for result in response.results:
            yield result.group_id, result.error_code, None, None

    return await ask_coordinators(cluster, group_ids, build, parse, what="Deleting group", deadline=deadline)


async def remove_members(
    cluster: Cluster, group_id: str, member_ids: Iterable[str], *, reason: str | None, deadline: float
) -> dict[str, KafkaError | None]:
    """Remove members of a classic or consumer group. (LeaveGroup since version 3 names several members.)"""
    members = [MemberIdentity(member_id=member_id, reason=reason) for member_id in member_ids]

    def build(part: list[str]) -> LeaveGroupRequest:
        return LeaveGroupRequest(group_id=part[0], members=members)

    def parse(response: LeaveGroupResponse) -> Iterable[Item[str, LeaveGroupResponse]]:
        yield group_id, response.error_code, None, response

    found = await ask_coordinators(
        cluster, [group_id], build, parse, what="Removing members of group", deadline=deadline
    )
    return {
        m.member_id: item_error(m.error_code, None, f"Removing {m.member_id}") if m.error_code else None
        for m in value_or_raise(found, group_id).members
    }


async def delete_group_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition], *, deadline: float
) -> dict[TopicPartition, KafkaError | None]:
    topics = by_topic(partitions)

    def build(part: list[str]) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=part[0],
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes]
                )
                for topic, indexes in topics.items()
            ],
        )

    def parse(response: OffsetDeleteResponse) -> Iterable[Item[str, OffsetDeleteResponse]]:
        yield group_id, response.error_code, None, response

    found = await ask_coordinators(
        cluster, [group_id], build, parse, what="Deleting offsets of group", deadline=deadline
    )
    response = value_or_raise(found, group_id)
    return {
        TopicPartition(topic.name, p.partition_index): (
            item_error(p.error_code, None, f"Deleting the offset of {topic.name}-{p.partition_index}")
            if p.error_code
            else None
        )
        for topic in response.topics
        for p in topic.partitions
    }


async def reset_group_offsets(
    cluster: Cluster,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    to: int | Mapping[TopicPartition, int],
    *,
    deadline: float,
) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
    """Move a group without members to a timestamp (or EARLIEST, LATEST), or to the offsets of a mapping.

    A timestamp after the last record stands for the end of the partition. If `partitions`
    is None, all partitions for which the group has committed offsets are moved.
    """
    if isinstance(to, Mapping):
        targets: dict[TopicPartition, int | KafkaError] = dict(to)
    else:
        if partitions is None:
            known = await fetch_group_offsets(cluster, group_id, deadline=deadline)
            partitions = list(known)
        wanted = list(partitions)
        found = await list_offsets(cluster, dict.fromkeys(wanted, to), deadline=deadline)
        ends = await list_offsets(cluster, dict.fromkeys(wanted, LATEST), deadline=deadline) if to >= 0 else found
        targets = {}
        for partition, answer in found.items():
            end = ends[partition]
            if isinstance(answer, KafkaError):
                targets[partition] = answer
            elif answer.offset >= 0:
                targets[partition] = answer.offset
            else:
                targets[partition] = end if isinstance(end, KafkaError) else end.offset
    moves = {partition: offset for partition, offset in targets.items() if isinstance(offset, int)}
    committed = await commit_group_offsets(cluster, group_id, moves, deadline=deadline)
    results: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
    for partition, target in targets.items():
        refusal = committed.get(partition)
        if isinstance(target, KafkaError):
            results[partition] = target
        else:
            results[partition] = refusal if refusal is not None else OffsetAndMetadata(target)
    return results
