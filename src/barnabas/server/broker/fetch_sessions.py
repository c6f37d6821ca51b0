"""Machine: incremental fetch sessions (KIP-227), after Kafka's FetchSession and FetchManager.

A client that fetches the same thousand partitions again and again sends them once. The server keeps them as a session;
later requests name only what changed, later responses only what is new. A session is known by an id and an epoch that
grows with every request, so that a lost answer is noticed:

    session_id  epoch   meaning
    0           0 / -1  full request: 0 asks for a session, -1 does not
    n           0       close session n, ask for a new one
    n           -1      close session n, full request without a session
    n           e > 0   incremental, must be the epoch the server expects

A request of a session is answered from those of its partitions that are on the session's list (`changed`): what it
names, what has changed since it was read, and what was not read to its end. Who reads takes them off.

Sessions live in a bounded cache. A newcomer takes the slot of a session idle for two minutes; failing that, a follower
takes a client's, and a larger session that of a smaller one that has had its two minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct, field

from barnabas.core.errors import ErrorCode
from barnabas.core.rng import Rng

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
EVICTION_MS: Final = 120_000

PartitionKey = tuple[str | UUID, int]
"""(topic name or topic id, partition): one session uses names or ids throughout."""


class Wanted(Struct):
    """What a client wants from one partition."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    follower_log_start_offset: int = -1


class Told(Struct):
    """What the client was last told about one partition; -1 makes the next answer mention it."""

    high_watermark: int = -1
    log_start_offset: int = -1


class Outcome(Struct):
    """The part of one partition's answer that decides whether an incremental response must contain it."""

    error: ErrorCode
    size: int
    high_watermark: int
    log_start_offset: int
    always: bool = False
    """A preferred read replica or a diverging epoch is in it."""


class Watch(Protocol):
    """Keeps a session's list up to date, for as long as the session lives."""

    def forget(self, key: PartitionKey) -> None: ...

    def close(self) -> None: ...


class _Session(Struct):
    session_id: int
    epoch: int
    uses_topic_ids: bool
    privileged: bool
    created_ms: int
    used_ms: int
    partitions: dict[PartitionKey, tuple[Wanted, Told]] = field(default_factory=dict)
    changed: dict[PartitionKey, None] = field(default_factory=dict)
    """The list: what to read, first come first served. Every partition that `watch` does not watch is on it."""
    watch: Watch | None = None

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()


class FetchContext(Struct):
    """One request's view: which partitions to read, in which order, and what to leave out of the answer."""

    _all: dict[PartitionKey, Wanted]
    """Of a request without a session."""
    _sessions: FetchSessions
    _session: _Session | None = None
    _create: bool = False
    _uses_topic_ids: bool = False
    _privileged: bool = False

    @property
    def incremental(self) -> bool:
        return self._session is not None

    @property
    def empty(self) -> bool:
        """There is nothing to wait for."""
        return not (self._all if self._session is None else self._session.partitions)

    @property
    def changed(self) -> dict[PartitionKey, None] | None:
        """The list of the session, for who keeps it; None without a session."""
        return None if self._session is None else self._session.changed

    @property
    def watch(self) -> Watch | None:
        return None if self._session is None else self._session.watch

    @watch.setter
    def watch(self, watch: Watch) -> None:
        assert self._session is not None
        self._session.watch = watch

    def look_at_all(self) -> None:
        """Put everything on the list, in the order of the session."""
        session = self._session
        if session is not None:
            session.changed.clear()
            session.changed.update(dict.fromkeys(session.partitions))

    def to_read(self) -> list[tuple[PartitionKey, Wanted]]:
        """What to read now, in order."""
        session = self._session
        if session is None:
            return list(self._all.items())
        partitions = session.partitions
        return [(key, entry[0]) for key in session.changed if (entry := partitions.get(key)) is not None]

    def has(self, key: PartitionKey, want: Wanted) -> bool:
        """The session still wants that, and not something else since."""
        entry = None if self._session is None else self._session.partitions.get(key)
        return entry is not None and entry[0] is want

    def is_news(self, key: PartitionKey, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client of a session was last told of another watermark, or another log start."""
        entry = None if self._session is None else self._session.partitions.get(key)
        if entry is None or entry[1].high_watermark == -1:
            return False
        told = entry[1]
        return told.high_watermark != high_watermark or told.log_start_offset != log_start_offset

    def finish(self, outcomes: Sequence[tuple[PartitionKey, Outcome]], now_ms: int) -> tuple[int, list[bool]]:
        """The session id of the response, and for each outcome whether the response contains it."""
        session = self._session
        if session is not None:
            return session.session_id, [_must_send(session, key, outcome) for key, outcome in outcomes]
        session_id = NO_SESSION
        if self._create:
            session_id = self._sessions.try_create(
                self._all, outcomes, now_ms, uses_topic_ids=self._uses_topic_ids, privileged=self._privileged
            )
        return session_id, [True] * len(outcomes)


def _must_send(session: _Session, key: PartitionKey, outcome: Outcome) -> bool:
    entry = session.partitions.get(key)
    if entry is None:  # forgotten by a request that overtook this one
        return True
    told = entry[1]
    changed = (
        outcome.size > 0
        or outcome.always
        or outcome.error is not ErrorCode.NONE
        or told.high_watermark != outcome.high_watermark
        or told.log_start_offset != outcome.log_start_offset
    )
    told.log_start_offset = outcome.log_start_offset
    # After an error the partition must be mentioned again once it is well, whatever its watermark.
    told.high_watermark = outcome.high_watermark if outcome.error is ErrorCode.NONE else -1
    if outcome.size > 0:
        # Whoever got data goes to the back, so that a response limit starves no partition.
        del session.partitions[key]
        session.partitions[key] = entry
        session.changed.pop(key, None)
        session.changed[key] = None
    return changed


def _goes_on(before: Wanted, now: Wanted) -> bool:
    """Whether the client took in what it was last told. A follower that cut its log, or that follows in another epoch
    by now, did not: left to a cut log, a watermark that is not told again would stand still until the next record."""
    return now.current_leader_epoch == before.current_leader_epoch and (
        (now.last_fetched_epoch, now.fetch_offset) >= (before.last_fetched_epoch, before.fetch_offset)
    )


class FetchSessions:
    """The cache of sessions, `max.incremental.fetch.session.cache.slots` large."""

    def __init__(self, slots: int, rng: Rng) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: dict[int, _Session] = {}  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        session_id: int,
        epoch: int,
        wanted: Iterable[tuple[PartitionKey, Wanted]],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        *,
        uses_topic_ids: bool,
        privileged: bool = False,
    ) -> FetchContext | ErrorCode:
        """The context of one Fetch request, or the error that answers it as a whole."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            closed = self._sessions.pop(session_id, None)
            if closed is not None:
                closed.close()
            return FetchContext(
                dict(wanted),
                self,
                _create=epoch == INITIAL_EPOCH,
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
        for key, want in wanted:
            entry = session.partitions.get(key)
            told = entry[1] if entry is not None and _goes_on(entry[0], want) else Told()
            session.partitions[key] = (want, told)
            session.changed[key] = None
        for key in forgotten:
            if session.watch is not None:
                session.watch.forget(key)
            session.partitions.pop(key, None)
            session.changed.pop(key, None)
        session.epoch = 1 if epoch == 0x7FFFFFFF else epoch + 1
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return FetchContext({}, self, session)

    def try_create(
        self,
        wanted: Mapping[PartitionKey, Wanted],
        outcomes: Sequence[tuple[PartitionKey, Outcome]],
        now_ms: int,
        *,
        uses_topic_ids: bool,
        privileged: bool,
    ) -> int:
        """A new session holding these partitions; NO_SESSION when no slot can be had."""
        if not self._make_room(len(wanted), now_ms, privileged=privileged):
            return NO_SESSION
        session_id = self._rng.randrange(1, 1 << 31)
        while session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        told = {
            key: Told(outcome.high_watermark if outcome.error is ErrorCode.NONE else -1, outcome.log_start_offset)
            for key, outcome in outcomes
        }
        partitions = {key: (want, told.get(key, Told())) for key, want in wanted.items()}
        self._sessions[session_id] = _Session(
            session_id, 1, uses_topic_ids, privileged, now_ms, now_ms, partitions, dict.fromkeys(partitions)
        )
        return session_id

    def _make_room(self, size: int, now_ms: int, *, privileged: bool) -> bool:
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
        self.evictions += 1
        return True
