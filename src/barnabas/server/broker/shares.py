"""Shell: the common part of ShareFetch and ShareAcknowledge: acknowledgements, and the end of a member's session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.work import Pauses
from barnabas.server.broker.share_sessions import CachedShareSession, MemberKey, PartitionKey, ShareSessionCache
from barnabas.server.replication.rules.share_values import Ack, AckType
from barnabas.server.replication.shares.partitions import SharePartitions

if TYPE_CHECKING:
    from barnabas.server.coordination.group.share.service import ShareGroupService
    from barnabas.server.coordination.share.service import ShareCoordinator

MEMBER_ID_CHARS_MAX: Final = 36


class AckBatch(Protocol):
    """The fields of an AcknowledgementBatch, which are the same in ShareFetch and ShareAcknowledge requests."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


AcknowledgeResults = dict[PartitionKey, KafkaError | None]
"""For each partition the error of its acknowledgements, or None."""


class Shares(Struct):
    """The services of share groups: coordinators, share partitions, sessions."""

    groups: ShareGroupService
    coordinator: ShareCoordinator
    partitions: SharePartitions
    sessions: ShareSessionCache

    async def acknowledge(
        self, key: MemberKey, batches: Mapping[PartitionKey, Sequence[AckBatch]], *, renews: bool
    ) -> AcknowledgeResults:
        """Acknowledge records, those of few partitions before the first await; returns when the share coordinator has
        written the changes.

        If `renews` is true, the request may renew acquisition locks (IsRenewAck).
        """
        group_id, member_id = key
        results: AcknowledgeResults = {}
        waits: dict[PartitionKey, asyncio.Future[None]] = {}
        pauses = Pauses()
        for partition, acks in batches.items():
            await pauses.after(1 + len(acks) // 5)
            results[partition] = None
            try:
                checked = check_acks(acks, renews=renews)
                found = self.partitions.find(group_id, *partition)
                if found is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                written = found.acknowledge(member_id, checked)
                if written is not None:
                    waits[partition] = written
            except KafkaError as error:
                results[partition] = error
        if waits:
            await asyncio.wait(waits.values())
        for partition, written in waits.items():
            failure = written.exception()
            if failure is not None:
                assert isinstance(failure, KafkaError)
                results[partition] = KafkaError(_CLIENT_ERRORS.get(failure.code, failure.code), failure.detail)
        return results

    async def close(self, key: MemberKey) -> None:
        """Close the session of a member and release the records that the member has acquired."""
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

    def _release(self, session: CachedShareSession) -> list[asyncio.Future[None]]:
        """Release the records that the member of the session has acquired. The returned futures are done when the share
        coordinator has written the changes."""
        found = [self.partitions.find(session.group_id, *partition) for partition in session.touched]
        released = [share_partition.release(session.member_id) for share_partition in found if share_partition]
        return [written for written in released if written is not None]

    def _forget_if_empty(self, group_id: str) -> None:
        """Forget the share partitions of a group that has no session here, because an administrator may reset its
        offsets. Acquired records are available again then: acquisitions are not persisted.
        """
        if not self.sessions.has_members(group_id):
            self.partitions.forget_group(group_id)


_CLIENT_ERRORS: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""The error for the member when the state of its share partition could not be written (Kafka's
SharePartition.fetchPersisterError)."""


def check_member(group_id: str | None, member_id: str | None) -> MemberKey:
    """The key of the member's session. Raises KafkaError INVALID_REQUEST for an empty or too long id."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.")
    if not member_id or len(member_id) > MEMBER_ID_CHARS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.")
    return group_id, member_id


def check_acks(batches: Sequence[AckBatch], *, renews: bool) -> list[Ack]:
    """Check that the batches are in order, do not overlap, and have known types; the type RENEW is known if `renews`.
    Raises KafkaError INVALID_REQUEST."""
    checked: list[Ack] = []
    before = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The acknowledged offsets {first} to {last} are not in order.")
        if first <= before:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The acknowledgement of offset {first} is out of order or overlaps the one before.",
            )
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The offsets {first} to {last} have {len(types)} types; send one type, or one for each offset.",
            )
        highest = AckType.RENEW if renews else AckType.REJECT
        if min(types) < 0 or max(types) > highest:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown acknowledgement type in {types}.")
        checked.append(Ack(first, last, types))
        before = last
    return checked
