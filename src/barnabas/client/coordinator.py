"""Shell: a consumer's side of group membership: joining, heartbeats, commits, and the rebalance listener.

The machine in `membership/classic.py` decides; this shell carries its requests to the coordinator on a connection of
their own (a join may stay unanswered for as long as a rebalance takes) and runs the user's listener. Listeners are
called from `poll` alone, so a user never sees partitions come or go while handling records.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.coordinators import CoordinatorType
from barnabas.client.errors import CommitFailedError
from barnabas.client.membership.classic import (
    Assigned,
    ClassicMember,
    Failed,
    JoinAgain,
    Lead,
    MemberState,
    Sync,
)
from barnabas.client.offsets import commit_group_offsets
from barnabas.client.subscription import Mode, SubscriptionState
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.client.versions import Versioned
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupResponse
from barnabas.wire.messages.sync_group import SyncGroupResponse

log = logging.getLogger("barnabas.client")

CHANNEL: Final = "group"
JOIN_SLACK_MS: Final = 5_000
"""A join is answered at the latest when the rebalance times out; this much later we stop waiting."""
_MEMBERSHIP_LOST: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class RebalanceListener:
    """Override what you need; methods may be plain or `async`. Called from `poll`.

    `on_partitions_revoked` comes before partitions go to others: the place to commit. `on_partitions_lost` means that
    they are somebody else's already, so committing cannot succeed; by default it does what revoked does.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """These partitions were added."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """These partitions are about to be taken away."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """These partitions were taken away without notice."""
        return self.on_partitions_revoked(partitions)


class ConsumerCoordinator:
    """Keeps one consumer in its group. Everything runs on the consumer's loop."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        member: ClassicMember,
        *,
        heartbeat_interval_ms: int,
        max_poll_interval_ms: int,
        exclude_internal_topics: bool,
        wake: Callable[[], None],
        before_revoke: Callable[[], Any],
    ) -> None:
        self.member = member
        self.listener: RebalanceListener = RebalanceListener()
        self._cluster = cluster
        self._subscription = subscription
        self._heartbeat_s = heartbeat_interval_ms / 1000.0
        self._max_poll_s = max_poll_interval_ms / 1000.0
        self._exclude_internal = exclude_internal_topics
        self._wake = wake
        self._before_revoke = before_revoke
        self._polled_at = cluster.now()
        self._joining: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._outcome: Assigned | None = None
        self._failure: BarnabasError | None = None
        self._lost = False
        self._counts: dict[str, int] = {}
        self._metadata_version = -1
        self._reason: str | None = None

    @property
    def metadata(self) -> GroupMetadata:
        options = self.member.options
        return GroupMetadata(
            options.group_id, self.member.generation_id, self.member.member_id, options.group_instance_id
        )

    # -- called from poll ------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        """One step: tell the listener what has happened, and join when that is due. Never waits for the group."""
        self._polled_at = self._cluster.now()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        await self._look_for_topics()
        if self._lost:
            self._lost = False
            await self._give_up(self.member.owned, lost=True)
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            await self._take_assignment(outcome)
        if self.member.wants_to_join and self._joining is None and self.member.topics:
            await self._before_joining()
            self._joining = asyncio.get_running_loop().create_task(self._join(), name="barnabas-consumer-join")
            self._joining.add_done_callback(self._on_joined)
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(
                self._send_heartbeats(), name="barnabas-consumer-heartbeats"
            )

    async def _look_for_topics(self) -> None:
        """Which topics there are, and how many partitions they have: both can call for a rebalance."""
        subscription = self._subscription
        if subscription.mode is Mode.PATTERN:
            metadata = self._cluster.metadata
            oldest = self._cluster.now() - self._cluster.options.metadata_max_age_ms / 1000.0
            if (
                self._metadata_version < 0
                or min((view.updated_at for view in metadata.topics.values()), default=oldest) < oldest
            ):
                await self._cluster.refresh(None)
            if self._metadata_version != metadata.version:
                self._metadata_version = metadata.version
                names = [n for n in metadata.topics if not (self._exclude_internal and n in INTERNAL_TOPICS)]
                subscription.match(names)
        self.member.on_topics(sorted(subscription.topics))
        if self.member.state is MemberState.STABLE and self._counts:
            for topic, count in self._counts.items():
                view = self._cluster.metadata.topics.get(topic)
                if view is not None and view.partitions and len(view.partitions) != count:
                    self._counts = {}
                    self._reason = f"{topic} has {len(view.partitions)} partitions now"
                    self.member.request_rejoin()
                    break

    async def _before_joining(self) -> None:
        revoked = self.member.revoke_before_join()
        if revoked:
            await self._give_up(revoked, lost=False)

    async def _give_up(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Take partitions from the user, after telling the listener."""
        gone = sorted(partitions)
        if gone:
            for partition in gone:
                state = self._subscription.partitions.get(partition)
                if state is not None:
                    state.revoking = True
            if lost:
                await _call(self.listener.on_partitions_lost, gone)
            else:
                await self._before_revoke()
                await _call(self.listener.on_partitions_revoked, gone)
        kept = self.member.owned - frozenset(gone)
        self.member.owned = kept
        self._subscription.set_partitions(sorted(kept))

    async def _take_assignment(self, outcome: Assigned) -> None:
        if outcome.revoked:
            self.member.owned = outcome.partitions | outcome.revoked
            await self._give_up(outcome.revoked, lost=False)
        self._subscription.set_partitions(sorted(outcome.partitions))
        await _call(self.listener.on_partitions_assigned, sorted(outcome.added))

    # -- joining, in a task of its own -----------------------------------------------------------------------------

    async def _join(self) -> None:
        """From unjoined to stable, through whatever the coordinator says on the way."""
        attempt = 0
        while True:
            step = await self._join_once()
            if isinstance(step, Assigned):
                self._outcome = step
                return
            if isinstance(step, Failed):
                raise step.error
            self._note(step)
            if step.lost:
                return  # the listener must hear of it before we join again
            if step.wait:
                await self._cluster.backoff(attempt)
                attempt += 1

    async def _join_once(self) -> Assigned | JoinAgain | Failed:
        member = self.member
        reason, self._reason = self._reason, None
        join = await self._ask(member.join_request(reason), member.options.rebalance_timeout_ms + JOIN_SLACK_MS)
        if not isinstance(join, JoinGroupResponse):
            return member.on_disconnected()
        step = member.on_join(join)
        if isinstance(step, Lead):
            counts = await self._partition_counts(step.topics)
            self._counts = counts
            step = member.lead(counts)
        if not isinstance(step, Sync):
            return step
        sync = await self._ask(step.request, member.options.rebalance_timeout_ms + JOIN_SLACK_MS)
        if not isinstance(sync, SyncGroupResponse):
            return member.on_disconnected()
        return member.on_sync(sync)

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        await self._cluster.refresh(sorted(topics))
        views = self._cluster.metadata.topics
        return {topic: len(views[topic].partitions) for topic in sorted(topics) if topic in views}

    async def _ask(self, request: Any, timeout_ms: float | None = None) -> Any:
        """The coordinator's answer, or None when it cannot be reached."""
        group_id = self.member.options.group_id
        deadline = self._cluster.deadline(timeout_ms)
        try:
            broker_id = await self._cluster.coordinators.find(CoordinatorType.GROUP, group_id)
            return await self._send_to(broker_id, request, deadline)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._cluster.coordinators.forget(CoordinatorType.GROUP, group_id)
            return None

    async def _send_to(self, broker_id: int, request: Any, deadline: float) -> Any:
        connection = await self._cluster.connection(broker_id, deadline, channel=CHANNEL)
        if isinstance(request, Versioned):
            version = connection.versions.choose(request.api_key, peer=connection.peer)
            return await connection.send(request.build(version), version, deadline)
        version = connection.versions.choose(ApiKey(request.__schema__.key), peer=connection.peer)
        return await connection.send(request, version, deadline)

    def _on_joined(self, task: asyncio.Task[None]) -> None:
        self._joining = None
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, BarnabasError):
                self._failure = error
            elif error is not None:
                self._failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Joining the group failed: {error!r}")
        self._wake()

    def _note(self, step: JoinAgain) -> None:
        if step.lost:
            self._lost = True
        if step.find_coordinator:
            self._cluster.coordinators.forget(CoordinatorType.GROUP, self.member.options.group_id)

    # -- heartbeats ------------------------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        session_s = self.member.options.session_timeout_ms / 1000.0
        heard_at = self._cluster.now()
        while True:
            await asyncio.sleep(self._heartbeat_s)
            member = self.member
            if member.state is not MemberState.STABLE:
                heard_at = self._cluster.now()
                continue
            if self._cluster.now() - self._polled_at > self._max_poll_s:
                log.warning(
                    "%s was not polled for max.poll.interval.ms; it leaves group %s until the next poll",
                    member.member_id,
                    member.options.group_id,
                )
                await self.leave("the time between polls was longer than max.poll.interval.ms")
                self._lost = True
                continue
            try:
                response = await self._ask(member.heartbeat_request())
            except KafkaError as error:
                self._failure = error
                self._wake()
                return
            if isinstance(response, HeartbeatResponse):
                heard_at = self._cluster.now()
                if member.state is MemberState.STABLE:
                    self._on_heartbeat(error_code(response.error_code))
            elif self._cluster.now() - heard_at > session_s:
                self._note(member.on_disconnected())
                self._wake()

    def _on_heartbeat(self, code: ErrorCode) -> None:
        step = self.member.on_heartbeat(code)
        if step is None:
            return
        if isinstance(step, Failed):
            self._failure = step.error
        else:
            self._note(step)
        self._wake()

    # -- commits and leaving ---------------------------------------------------------------------------------------

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, deadline: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit as the member we are. Raises CommitFailedError when the group has moved on without us."""
        try:
            return await commit_group_offsets(self._cluster, self.metadata, offsets, deadline=deadline)
        except KafkaError as error:
            if error.code in _MEMBERSHIP_LOST:
                step = self.member.on_heartbeat(error.code)
                if isinstance(step, JoinAgain):
                    self._note(step)
                raise CommitFailedError(error.code) from error
            raise

    async def leave(self, reason: str) -> None:
        """Leave the group, so that the others need not wait for the session time-out. Static members just stay away."""
        member = self.member
        if member.member_id and member.options.group_instance_id is None:
            request = Versioned(ApiKey.LEAVE_GROUP, lambda version: member.leave_request(version, reason))
            try:
                await self._ask(request, self._heartbeat_s * 1000.0)
            except KafkaError as error:
                log.info("leaving group %s was refused: %s", member.options.group_id, error)
        member.forget()

    async def close(self, reason: str = "the consumer is being closed") -> None:
        """Revoke, leave, and end the tasks."""
        for task in (self._heartbeats, self._joining):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._heartbeats = self._joining = None
        if self.member.owned:
            await self._give_up(self.member.owned, lost=False)
        await self.leave(reason)


async def _call(callback: Callable[[list[TopicPartition]], Any], partitions: list[TopicPartition]) -> None:
    """A listener's method, plain or async."""
    result = callback(partitions)
    if inspect.isawaitable(result):
        await result
