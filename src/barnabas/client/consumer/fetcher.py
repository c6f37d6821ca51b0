"""Shell: keeps fetches under way to every leader that has partitions to read, and returns the fetched records.

There is one fetch in flight to each broker, within a fetch session (KIP-227): later requests have only changes, and
responses only partitions with new data. At most one more buffer of a partition is fetched while the user reads one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.metadata import TopicDescription
from barnabas.client.consumer.subscription import PartitionState, ResetPolicy, SubscriptionState
from barnabas.client.errors import OffsetOutOfRangeError, TruncationError
from barnabas.client.fetching import (
    NO_TOPIC_IDS_VERSION,
    ConsumerFetchConfig,
    FetchTarget,
    build_fetch,
    fetched,
    note_leader_hints,
    partitions_of,
)
from barnabas.client.values import FetchedBatches
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.core.ids import NO_LEADER_EPOCH, NO_TOPIC_ID, TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.fetch import FetchResponse, PartitionData

log = logging.getLogger("barnabas.client")

FINAL_EPOCH: Final = -1
SESSION_EPOCH_MAX: Final = 0x7FFFFFFF
SESSIONS_VERSION: Final = 7
LAST_EPOCH_VERSION: Final = 12
BUFFERS_PER_PARTITION_MAX: Final = 2
CONNECT_WAIT_MS: Final = 2_000


@dataclass(slots=True)
class _Session:
    """The fetch session with one broker (FetchSessionHandler)."""

    session_id: int = 0
    epoch: int = 0
    known: dict[TopicPartition, FetchTarget] = field(default_factory=dict)

    def reset(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self.known.clear()

    def on_success(self, session_id: int) -> None:
        if session_id == 0:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = 1 if self.epoch >= SESSION_EPOCH_MAX else self.epoch + 1


@dataclass(slots=True)
class _Fetch:
    """One fetch request in flight."""

    targets: dict[TopicPartition, FetchTarget]
    names: dict[UUID, str]
    session: _Session


class _Arrived(NamedTuple):
    """A buffer that waits in `ready`. The buffer is stale when the position of its partition was moved by a seek, or
    the partition was revoked, after the buffer had arrived. That holds even if the partition is at the same position
    again, because the partition is fetched again from that position."""

    batches: FetchedBatches
    state: PartitionState
    moves: int


class Fetcher:
    """The fetched batches of one consumer. All methods run on the consumer's event loop."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        limits: ConsumerFetchConfig,
        reset_policy: ResetPolicy,
        clock: Clock,
    ) -> None:
        self.ready: deque[_Arrived] = deque()
        self.error: BarnabasError | None = None
        self.arrived = asyncio.Event()
        """Set when there are new buffers or an error."""
        self._cluster = cluster
        self._subscription = subscription
        self.limits = limits
        self._reset_policy = reset_policy
        self._clock = clock
        self._sessions: dict[int, _Session] = {}
        self._in_flight: dict[int, asyncio.Future[FetchResponse]] = {}
        self._asked: set[TopicPartition] = set()
        self._retry_at: dict[int, float] = {}
        self._buffered: dict[TopicPartition, int] = {}

    # -- sending ---------------------------------------------------------------------------------------------------

    def wanting(self) -> list[PartitionState]:
        """The partitions that need a fetch now, except those whose leader has a fetch in flight or is in back-off."""
        now = self._cluster.now()
        buffered = self._buffered
        return [
            state
            for partition, state in self._subscription.partitions.items()
            if state.fetchable
            and state.retry_at <= now
            and buffered.get(partition, 0) < BUFFERS_PER_PARTITION_MAX
            and partition not in self._asked
            and not self._must_wait(state, now)
        ]

    def _must_wait(self, state: PartitionState, now: float) -> bool:
        """Whether the partition's leader has a fetch in flight or is in back-off. `send_fetches` cannot fetch such a
        partition, and must not be started for it again and again.
        """
        view = self._cluster.metadata.topics.get(state.partition.topic)
        if view is None or state.partition.partition >= len(view.partitions):
            return False
        leader = self._leader(state, view, now)
        return leader in self._in_flight or self._retry_at.get(leader, 0.0) > now

    @staticmethod
    def _leader(state: PartitionState, view: TopicDescription, now: float) -> int:
        if state.preferred_replica >= 0 and now < state.preferred_until:
            return state.preferred_replica
        return view.partitions[state.partition.partition].leader

    async def send_fetches(self) -> None:
        """Send a fetch to every broker that leads partitions to fetch and has no fetch in flight."""
        now = self._cluster.now()
        wanted: dict[int, list[tuple[PartitionState, FetchTarget]]] = {}
        states = self.wanting()
        if not states:
            return
        views = await self._cluster.topics({state.partition.topic for state in states})
        for state in states:
            view = views[state.partition.topic]
            index = state.partition.partition
            if view.error is not ErrorCode.NONE or index >= len(view.partitions):
                self._on_partition_error(state, view.error if view.error else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            leader = self._leader(state, view, now)
            if leader not in self._cluster.metadata.brokers:
                self._on_partition_error(state, ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            if not state.belongs_to(view.topic_id):
                self._on_new_topic(state)
                continue
            epoch = view.partitions[index].leader_epoch
            target = FetchTarget(state.partition, state.next_fetch, view.topic_id, epoch, state.last_fetched_epoch)
            wanted.setdefault(leader, []).append((state, target))
        await asyncio.gather(
            *(
                self._send(leader, pairs)
                for leader, pairs in wanted.items()
                if leader not in self._in_flight and self._retry_at.get(leader, 0.0) <= now
            )
        )

    async def _send(self, leader: int, pairs: list[tuple[PartitionState, FetchTarget]]) -> None:
        cluster = self._cluster
        # A broker that does not accept a connection must not hold up the fetches to others; the pool goes on trying.
        patience_ms = min(CONNECT_WAIT_MS, cluster.options.request_timeout_ms)
        try:
            connection = await cluster.connection(leader, cluster.deadline(patience_ms))
        except KafkaError as error:
            self._on_broker_error(leader, error, [state.partition for state, _ in pairs])
            return
        session = self._sessions.setdefault(leader, _Session())
        targets = {target.partition: target for _, target in pairs}
        by_name = any(target.topic_id == NO_TOPIC_ID for target in targets.values())
        version = connection.choose_version(ApiKey.FETCH, max_version=NO_TOPIC_IDS_VERSION if by_name else None)
        if version < LAST_EPOCH_VERSION:
            targets = {p: replace(t, last_fetched_epoch=NO_LEADER_EPOCH) for p, t in targets.items()}
        changed = [t for p, t in targets.items() if session.epoch == 0 or session.known.get(p) != t]
        # A topic that was created again has another id. The session would keep the old id, and the broker would answer
        # each fetch of the session at once with UNKNOWN_TOPIC_ID.
        has_ids = version > NO_TOPIC_IDS_VERSION
        gone = {
            p: known.topic_id
            for p, known in (session.known.items() if session.epoch else ())
            if (now := targets.get(p)) is None or (has_ids and now.topic_id != known.topic_id)
        }
        identity = (session.session_id, session.epoch) if version >= SESSIONS_VERSION else (0, -1)
        request, _ = build_fetch(changed, self.limits, session=identity, forgotten=gone)
        session.known = targets
        fetch = _Fetch(
            dict(targets),
            {target.topic_id: partition.topic for partition, target in targets.items()},
            session,
        )
        deadline = cluster.deadline(cluster.options.request_timeout_ms + self.limits.max_wait_ms)
        future = connection.send(request, version, deadline)
        self._in_flight[leader] = future
        self._asked.update(targets)
        future.add_done_callback(lambda done: self._on_response(leader, fetch, done))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _on_response(self, leader: int, fetch: _Fetch, future: asyncio.Future[FetchResponse]) -> None:
        self._in_flight.pop(leader, None)
        self._asked.difference_update(fetch.targets)
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            response = future.result()
            code = error_code(response.error_code)
            if code is ErrorCode.NONE:
                fetch.session.on_success(response.session_id)
                self._cluster.problems.solved(f"broker {leader}")
                for partition, data in partitions_of(response, fetch.names):
                    self._on_partition(fetch, response, partition, data)
                if response.throttle_time_ms:
                    self._retry_at[leader] = self._cluster.now() + response.throttle_time_ms / 1000.0
                self.arrived.set()
                return
            error = KafkaError(code)
        self._on_broker_error(leader, error, fetch.targets)

    def _on_broker_error(self, leader: int, error: BaseException, partitions: Collection[TopicPartition]) -> None:
        session = self._sessions.get(leader)
        if session is not None:
            session.reset()
        if not isinstance(error, KafkaError) or not error.retriable:
            self.error = error if isinstance(error, BarnabasError) else KafkaError(-1, repr(error))
        elif error.code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
            self._cluster.problems.note(f"broker {leader}", error, self._cluster.now())
            delay = self._cluster.options.retry_backoff.delay_ms(0, self._cluster.rng)
            self._retry_at[leader] = self._cluster.now() + delay / 1000.0
            self._cluster.metadata.mark_stale({partition.topic for partition in partitions})
            for partition in partitions:
                state = self._subscription.partitions.get(partition)
                if state is not None and state.preferred_replica == leader:
                    state.preferred_replica = -1
        self.arrived.set()

    def _on_partition(
        self, fetch: _Fetch, response: FetchResponse, partition: TopicPartition, data: PartitionData
    ) -> None:
        state = self._subscription.partitions.get(partition)
        target = fetch.targets.get(partition)
        if state is None or target is None or state.position is None:
            return
        if target.position != state.next_fetch or not state.belongs_to(target.topic_id):
            return  # the assignment or the position has changed since the fetch was sent
        code = error_code(data.error_code)
        if code is not ErrorCode.NONE:
            if self._buffered.get(partition) or state.has_unreturned:
                state.retry_at = self._cluster.now() + 0.05  # first return the records that have arrived
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                self._on_out_of_range(state, data)
            elif not note_leader_hints(self._cluster, response, partition, data.current_leader):
                self._on_partition_error(state, code)
            return
        position = state.next_fetch
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            self._on_diverging(state, data.diverging_epoch.end_offset, target.leader_epoch)
            return
        self._cluster.problems.solved(f"partition {partition}")
        if state.topic_id == NO_TOPIC_ID:
            state.topic_id = target.topic_id
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until = self._cluster.now() + self._cluster.options.metadata_max_age_ms / 1000.0
            return
        try:
            batches = fetched(partition, position, data)
        except KafkaError as error:  # bytes that are no batches
            self.error = KafkaError(error.code, f"The records of {partition} from offset {position} on: {error}")
            return
        if batches is None:
            return
        last_epoch = state.last_fetched_epoch
        state.fetch_position = batches.end
        state.fetch_epoch = batches.end_epoch if batches.end_epoch >= 0 else last_epoch
        if state.fetch_position == position:
            self.error = KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch at offset {position} of {partition} does not fit a fetch; raise max.partition.fetch.bytes.",
            )
            return
        self._buffered[partition] = self._buffered.get(partition, 0) + 1
        self.ready.append(_Arrived(batches, state, state.moves))

    def _on_out_of_range(self, state: PartitionState, data: PartitionData) -> None:
        if state.preferred_replica >= 0:
            state.preferred_replica = -1  # a follower may lag behind: fetch from the leader before raising an error
            return
        assert state.position is not None
        if self._reset_policy.is_none:
            self.error = OffsetOutOfRangeError(state.partition, state.position, data.log_start_offset, -1)
        else:
            state.reset(self._reset_policy.timestamp_at(self._clock.now_ms()))

    def _on_new_topic(self, state: PartitionState) -> None:
        """Handle a topic that was deleted and created again: return the records of the old topic that have arrived.
        Then begin the new topic at a commit that belongs to it, or by auto.offset.reset."""
        if self._buffered.get(state.partition) or state.has_unreturned:
            state.retry_at = self._cluster.now() + 0.05
            return
        log.warning(
            "topic %s was deleted and created again; %s begins anew instead of at offset %s",
            state.partition.topic,
            state.partition,
            state.position,
        )
        self._subscription.forget(state.partition)
        state.preferred_replica = -1
        self.arrived.set()

    def _on_diverging(self, state: PartitionState, end_offset: int, leader_epoch: int) -> None:
        """Handle a log that was truncated below the position (KIP-320, Fetch version 12): continue at the point where
        the logs diverge, or set `error` with auto.offset.reset=none.

        A log is truncated only when a new leader, with a new epoch, is elected. If the record before the position has
        the leader's present epoch, or a newer one, the position is that of a topic that was deleted and created again,
        for example from a commit without a topic id. Then the new topic begins by auto.offset.reset.
        """
        assert state.position is not None
        if state.preferred_replica >= 0:
            state.preferred_replica = -1  # a follower may lag behind: fetch from the leader before moving the position
            return
        if self._reset_policy.is_none:
            self.error = TruncationError(state.partition, state.position, end_offset)
        elif 0 <= leader_epoch <= state.last_fetched_epoch:
            state.reset(self._reset_policy.timestamp_at(self._clock.now_ms()))
        else:
            state.seek(min(end_offset, state.position))

    def _on_partition_error(self, state: PartitionState, code: ErrorCode) -> None:
        if not code.retriable:
            self.error = KafkaError(code, f"Fetching {state.partition}: {code.message}")
            return
        state.preferred_replica = -1
        text = f"Fetching {state.partition}: {code.message}"
        self._cluster.problems.note(f"partition {state.partition}", KafkaError(code, text), self._cluster.now())
        self._cluster.note_error(state.partition, code)
        delay = self._cluster.options.retry_backoff.delay_ms(0, self._cluster.rng)
        state.retry_at = self._cluster.now() + delay / 1000.0

    # -- giving out ------------------------------------------------------------------------------------------------

    def take(self, wanted: Collection[TopicPartition] | None = None) -> FetchedBatches | None:
        """The next buffer of an assigned partition, or of a wanted one. Raises the error that stopped fetching,
        once."""
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error  # the traceback refers to this frame: a cycle would keep the buffers of the frames above
        held: list[_Arrived] = []
        found: FetchedBatches | None = None
        while self.ready and found is None:
            arrived = self.ready.popleft()
            batches, state = arrived.batches, arrived.state
            if state.moves != arrived.moves:
                self.release(batches.partition)
            elif not state.fetchable or not (wanted is None or batches.partition in wanted):
                held.append(arrived)  # paused, or not wanted now: keep the buffer
            else:
                assert state.position == batches.position, "the buffers of a partition follow each other"
                found = batches
        self.ready.extendleft(reversed(held))
        return found

    def put_back(self, batches: FetchedBatches, position: int, *, released: bool = False) -> None:
        """Keep the rest of a buffer, from `position` on. `released`: `release` was called for the buffer."""
        state = self._subscription.partitions.get(batches.partition)
        if state is not None:
            self.ready.appendleft(_Arrived(replace(batches, position=position), state, state.moves))
        if released and state is not None:
            self._buffered[batches.partition] = self._buffered.get(batches.partition, 0) + 1

    def release(self, partition: TopicPartition) -> None:
        """Note that one buffer of a partition is no longer needed, so that the partition may be fetched again."""
        count = self._buffered.get(partition, 0)
        if count > 1:
            self._buffered[partition] = count - 1
        else:
            self._buffered.pop(partition, None)

    def next_retry(self) -> float | None:
        """The loop time of the next retry."""
        now = self._cluster.now()
        times = [at for at in self._retry_at.values() if at > now]
        times += [state.retry_at for state in self._subscription.partitions.values() if state.retry_at > now]
        return min(times, default=None)

    async def close(self, limit_ms: float) -> None:
        """Cancel the fetches, and close the fetch sessions: an open session takes a place in its broker's cache.

        A broker that does not respond within `limit_ms` keeps its session until the broker evicts the session.
        """
        waiting = frozenset(self._in_flight)
        in_flight: list[Any] = list(self._in_flight.values())
        self._in_flight.clear()
        for future in in_flight:
            future.cancel()
        open_sessions = [(leader, session) for leader, session in self._sessions.items() if session.session_id]
        self._sessions.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_ms / 1000.0):
                await asyncio.gather(
                    *(self._close_session(leader, session, leader in waiting) for leader, session in open_sessions)
                )

    async def _close_session(self, leader: int, session: _Session, waits: bool) -> None:
        """Send the last request of a session (KIP-227). A fetch that waits for records holds up its connection, so the
        request goes over another one."""
        limits = replace(self.limits, max_wait_ms=0, min_bytes=0)
        request, _ = build_fetch([], limits, session=(session.session_id, FINAL_EPOCH))
        purpose = "close fetch session" if waits else ""
        try:
            await self._cluster.send(leader, request, purpose=purpose)
        except BarnabasError as error:
            log.debug("the fetch session with broker %d was not closed: %s", leader, error)
