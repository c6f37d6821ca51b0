"""Shell: what ShareFetch and ShareAcknowledge have in common: acknowledging, and letting go of a member."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.broker.metadata_cache import NodeAddress
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.share_sessions import MemberKey, PartitionKey, ShareSession, ShareSessions
from barnabas.server.replication.rules.share_values import Ack, AckType
from barnabas.server.replication.shares.partitions import SharePartitions

if TYPE_CHECKING:
    from barnabas.server.broker.services import Services
    from barnabas.server.coordination.group.share.service import ShareGroupService
    from barnabas.server.coordination.share.service import ShareCoordinator

MEMBER_ID_CHARS_MAX: Final = 36


class AckBatch(Protocol):
    """An acknowledgement as both requests carry it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


Refusals = dict[PartitionKey, KafkaError | None]
"""What became of each partition's acknowledgements."""


class Shares(Struct):
    """Everything about share groups, plugged together."""

    groups: ShareGroupService
    coordinator: ShareCoordinator
    partitions: SharePartitions
    sessions: ShareSessions

    async def acknowledge(
        self, key: MemberKey, batches: Mapping[PartitionKey, Sequence[AckBatch]], *, renews: bool
    ) -> Refusals:
        """All steps are taken before the first await; the answer comes when they are written."""
        group_id, member_id = key
        outcomes: Refusals = {}
        waits: dict[PartitionKey, asyncio.Future[None]] = {}
        for partition, acks in batches.items():
            outcomes[partition] = None
            try:
                checked = check_acks(acks, renews=renews)
                found = self.partitions.find(group_id, *partition)
                if found is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                written = found.acknowledge(member_id, checked)
                if written is not None:
                    waits[partition] = written
            except KafkaError as error:
                outcomes[partition] = error
        if waits:
            await asyncio.wait(waits.values())
        for partition, written in waits.items():
            failure = written.exception()
            if failure is not None:
                assert isinstance(failure, KafkaError)
                outcomes[partition] = KafkaError(_TOLD.get(failure.code, failure.code), failure.detail)
        return outcomes

    async def close(self, key: MemberKey) -> None:
        """The member says that it goes."""
        session = self.sessions.close(key)
        if session is None:
            return
        waits = self._release(session)
        if waits:
            await asyncio.wait(waits)
        self._forget_if_empty(session.group_id)

    def on_disconnect(self, connection_id: int) -> None:
        for session in self.sessions.on_disconnect(connection_id):
            self._release(session)
            self._forget_if_empty(session.group_id)

    def _release(self, session: ShareSession) -> list[asyncio.Future[None]]:
        """What the member holds comes free; the futures are done when that is written."""
        found = [self.partitions.find(session.group_id, *partition) for partition in session.touched]
        released = [share_partition.release(session.member_id) for share_partition in found if share_partition]
        return [written for written in released if written is not None]

    def _forget_if_empty(self, group_id: str) -> None:
        """Without members here an administrator may move the group, so what is known of it is dropped. What was held
        is free then anyway: acquiring is not remembered.
        """
        if not self.sessions.has_members(group_id):
            self.partitions.forget_group(group_id)


_TOLD: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""What a member is told when its share partition's state could not be written (SharePartition.fetchPersisterError)."""


Leader = tuple[int, int, NodeAddress | None]
"""Its id, its epoch, and where the client finds it."""


def new_leader(services: Services, ctx: RequestContext, key: PartitionKey) -> Leader | None:
    """Who leads the partition: for members who came to the wrong broker."""
    name = services.partitions.topic_name(key[0])
    state = None if name is None else services.metadata.image.topics.partition(name, key[1])
    if state is None:
        return None
    return state.leader, state.leader_epoch, services.metadata.address(state.leader, ctx.client.listener)


def check_member(group_id: str | None, member_id: str | None) -> MemberKey:
    """Raises KafkaError INVALID_REQUEST."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def check_acks(batches: Sequence[AckBatch], *, renews: bool) -> list[Ack]:
    """In order, apart, with types that there are. Raises KafkaError INVALID_REQUEST."""
    checked: list[Ack] = []
    before = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Acknowledgement of offsets {first} to {last}.")
        if first <= before:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The acknowledgement of {first} is out of order.")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(types)} types for the offsets {first} to {last}.")
        highest = AckType.RENEW if renews else AckType.REJECT
        if min(types) < 0 or max(types) > highest:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown acknowledgement type in {types}.")
        checked.append(Ack(first, last, types))
        before = last
    return checked
