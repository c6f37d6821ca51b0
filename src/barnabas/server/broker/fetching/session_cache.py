"""Machine: the cache of incremental fetch sessions (KIP-227), after Kafka's FetchSessionCache and FetchManager.

A client that fetches from the same thousand partitions again and again sends them once. The broker keeps them as a
session; later requests name only the partitions that the client changes, later responses contain only the partitions
with something new. A session is identified by an id. Its epoch grows with every request, so that a lost response is
noticed:

    session_id  epoch   meaning
    0           0 / -1  full request: 0 requests a session, -1 does not
    n           0       close session n, request a new one
    n           -1      close session n, full request without a session
    n           e > 0   incremental; e must be the epoch that the broker expects

The number of sessions is bounded. A new session takes the slot of a session that has been idle for two minutes. If
there is none, a follower's session takes a consumer's slot, and a larger session takes the slot of a smaller one that
is older than two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng
from barnabas.protocol.wire.messages.fetch import PartitionData
from barnabas.server.broker.fetching.session import FetchSession, PartitionKey, RequestedPartition

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICTION_MS: Final = 120_000
"""The idle time, or age, after which a session may be evicted (Kafka's constant of two minutes)."""


class FetchContext(Struct):
    """The partitions of one Fetch request: those of its session, or those that the request lists."""

    session: FetchSession | None
    _listed: list[tuple[PartitionKey, RequestedPartition]]
    """The partitions of a request without a session."""
    _cache: FetchSessionCache
    _creates_session: bool = False
    _uses_topic_ids: bool = False
    _privileged: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the request has no partitions, so that waiting for records is useless."""
        return not (self._listed if self.session is None else self.session.partitions)

    def to_read(self) -> list[tuple[PartitionKey, RequestedPartition]]:
        """The partitions to read now, in order: the marked partitions of the session, or all that the request lists."""
        return self._listed if self.session is None else self.session.marked()

    def finish(self, answers: Sequence[tuple[PartitionKey, PartitionData]], now_ms: int) -> tuple[int, list[bool]]:
        """The session id of the response, and for each answer whether the response contains it."""
        session = self.session
        if session is not None:
            return session.session_id, [session.must_send(key, data) for key, data in answers]
        session_id = NO_SESSION
        if self._creates_session:
            session_id = self._cache.try_create(
                self._listed, answers, now_ms, uses_topic_ids=self._uses_topic_ids, privileged=self._privileged
            )
        return session_id, [True] * len(answers)


class FetchSessionCache:
    """The fetch sessions of this broker, at most `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, max_incremental_fetch_session_cache_slots: int, rng: Rng) -> None:
        self._slots = max_incremental_fetch_session_cache_slots
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        session_id: int,
        epoch: int,
        requested: Iterable[tuple[PartitionKey, RequestedPartition]],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        *,
        uses_topic_ids: bool,
        privileged: bool = False,
    ) -> FetchContext | ErrorCode:
        """The context of one Fetch request, or the top-level error code of its response.

        `privileged` marks the requests of followers.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            closed = self._sessions.pop(session_id, None)
            if closed is not None:
                closed.close()
            return FetchContext(
                None,
                list(dict(requested).items()),  # if a partition is listed twice, the last entry counts
                self,
                _creates_session=epoch == INITIAL_EPOCH,
                _uses_topic_ids=uses_topic_ids,
                _privileged=privileged,
            )
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(requested, forgotten, now_ms)
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext(session, [], self)

    def try_create(
        self,
        requested: Sequence[tuple[PartitionKey, RequestedPartition]],
        answers: Sequence[tuple[PartitionKey, PartitionData]],
        now_ms: int,
        *,
        uses_topic_ids: bool,
        privileged: bool,
    ) -> int:
        """Create a session with these partitions; NO_SESSION if there is no slot for it.

        `answers` contains the offsets that the client learns from the response that announces the session.
        """
        if not self._try_free_slot(len(requested), now_ms, privileged=privileged):
            return NO_SESSION
        session_id = self._rng.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        session = FetchSession(session_id, requested, now_ms, uses_topic_ids=uses_topic_ids, privileged=privileged)
        for key, data in answers:
            session.partitions[key].remember(data)
        self._sessions[session_id] = session
        return session_id

    def _try_free_slot(self, size: int, now_ms: int, *, privileged: bool) -> bool:
        """Whether there is a slot for a new session of `size` partitions, if need be by evicting another session."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            victim = oldest
        else:
            candidates = [
                session
                for session in self._sessions.values()
                if (privileged and not session.privileged)
                or (now_ms - session.created_ms > EVICTION_MS and (privileged or not session.privileged))
            ]
            if not candidates:
                return False
            victim = min(candidates, key=lambda s: (s.privileged, len(s.partitions), s.session_id))
            if (privileged, size) <= (victim.privileged, len(victim.partitions)):
                return False
        self._sessions.pop(victim.session_id).close()
        return True
