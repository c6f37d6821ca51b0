"""Machine: share sessions (KIP-932), after Kafka's ShareSessionCache: the partitions that each member fetches.

A member sends only the changes of its set of partitions. An epoch that grows with every request reveals a lost
response. A session belongs to a connection: when the connection ends, the records that the member holds are released.

    epoch   meaning
    0       open a session, or replace the member's session
    n > 0   must be the epoch that the broker expects
    -1      the last request: close the session and release all records

`group.share.max.share.sessions` bounds the sessions of all members of all groups together. No session is evicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 0x7FFFFFFF

PartitionKey = tuple[TopicId, int]
MemberKey = tuple[str, str]
"""The key of a session: group id and member id."""


class CachedShareSession(Struct):
    """The session of one member."""

    group_id: str
    member_id: str
    connection_id: int
    epoch: int = 1
    partitions: dict[PartitionKey, None] = field(default_factory=dict)
    touched: dict[PartitionKey, None] = field(default_factory=dict)
    """Every partition that the session has ever contained: the member may hold records of any of them."""


class ShareSessionCache:
    """The share sessions of this broker."""

    def __init__(self, group_share_max_share_sessions: int) -> None:
        self._limit = group_share_max_share_sessions
        self._sessions: dict[MemberKey, CachedShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def has_members(self, group_id: str) -> bool:
        return any(group == group_id for group, _ in self._sessions)

    def open(
        self,
        key: MemberKey,
        epoch: int,
        added: Iterable[PartitionKey],
        forgotten: Iterable[PartitionKey],
        connection_id: int,
        *,
        acknowledges: bool,
    ) -> list[PartitionKey]:
        """The partitions of one ShareFetch, in the order in which they are read. Each request begins with another
        partition, so that the same partitions are not always read last, when MaxRecords or MaxBytes may be reached
        already.

        `added` and `forgotten` change the session's partitions. `acknowledges` is true for a request with
        acknowledgements. Raises KafkaError.
        """
        if epoch == INITIAL_EPOCH:
            return self._begin(key, added, connection_id, acknowledges=acknowledges)
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL_EPOCH:
            return []
        self._check_epoch(session, epoch)
        for partition in added:
            session.partitions[partition] = session.touched[partition] = None
        for partition in forgotten:
            session.partitions.pop(partition, None)
        listed = list(session.partitions)
        turn = epoch % len(listed) if listed else 0
        return listed[turn:] + listed[:turn]

    def _begin(
        self, key: MemberKey, added: Iterable[PartitionKey], connection_id: int, *, acknowledges: bool
    ) -> list[PartitionKey]:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The first fetch of a share session cannot acknowledge.")
        before = self._sessions.pop(key, None)
        if len(self._sessions) >= self._limit:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = CachedShareSession(*key, connection_id)
        session.partitions.update(dict.fromkeys(added))
        session.touched.update(session.partitions)
        if before is not None:
            session.touched.update(before.touched)
        return list(session.partitions)

    def acknowledge(self, key: MemberKey, epoch: int) -> None:
        """Check the epoch of one ShareAcknowledge. Raises KafkaError."""
        if epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            self._check_epoch(session, epoch)

    def _check_epoch(self, session: CachedShareSession, epoch: int) -> None:
        if session.epoch != epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"The share session expects epoch {session.epoch}, not {epoch}."
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1

    def close(self, key: MemberKey) -> CachedShareSession | None:
        """Remove the member's session; returns it, because the member may hold records of its partitions."""
        return self._sessions.pop(key, None)

    def on_disconnect(self, connection_id: int) -> list[CachedShareSession]:
        """Remove the sessions of a connection that has ended; returns them."""
        lost = [session for session in self._sessions.values() if session.connection_id == connection_id]
        for session in lost:
            del self._sessions[session.group_id, session.member_id]
        return lost
