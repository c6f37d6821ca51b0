"""Machine: validation of ConsumerGroupHeartbeat requests and of member epochs (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.server.coordination.group.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupMember,
)
from barnabas.server.coordination.group.consumer.reconcile import Owned

CLIENT_MEMBER_IDS_FROM = 1


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]) -> None:
    """Validate the fields of the request, in the order of Kafka's GroupCoordinatorService
    (`throwIfConsumerGroupHeartbeatRequestIsInvalid`). Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.

    A joining member must send an empty list of partitions. A list that is null means "unchanged since the last
    heartbeat", and a member that joins has no last heartbeat."""
    epoch = request.member_epoch
    needs_member_id = api_version >= CLIENT_MEMBER_IDS_FROM or epoch > 0 or epoch == LEAVING_EPOCH
    if needs_member_id and not request.member_id.strip():
        raise invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise invalid("GroupId can't be empty.")
    for name, text in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if text is not None and not text.strip():
            raise invalid(f"{name} can't be empty.")
    if epoch < STATIC_LEAVING_EPOCH:
        raise invalid(f"MemberEpoch {epoch} is invalid.")
    if epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        raise invalid("InstanceId can't be null.")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise invalid("TopicPartitions must be empty when (re-)joining.")
        # An empty list is a valid subscription: of a client whose client-side pattern matches no topic yet.
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH)


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member joins, or the request has all fields, as a client sends them after a lost response. In both
    cases the response must have the assignment."""
    return request.member_epoch == JOINING_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned:
    if request.topic_partitions is None:
        return None
    return {entry.topic_id: frozenset(entry.partitions) for entry in request.topic_partitions if entry.partitions}


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: Owned) -> None:
    """Check the member epoch of a request. Raises KafkaError FENCED_MEMBER_EPOCH.

    The previous epoch is accepted if the last response may have been lost: the member owns no partition that is not
    assigned to it. Epoch 0 (joining) is always accepted."""
    if epoch in (member.member_epoch, JOINING_EPOCH):
        return
    repeats = member.previous_epoch == epoch < member.member_epoch
    if repeats and owned is not None and all(ps <= member.assigned.get(t, frozenset()) for t, ps in owned.items()):
        return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {'greater' if epoch > member.member_epoch else 'smaller'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({member.member_epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )
