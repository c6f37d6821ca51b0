"""Shell: membership in the classic protocol. `ClassicCoordinator` sends the joins, syncs and heartbeats on which
`membership/classic.py` decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.cluster.versions import Versioned
from barnabas.client.consumer.coordinator import ConsumerCoordinator, GroupTiming
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.membership.classic import (
    Assigned,
    ClassicMember,
    JoinAgain,
    Lead,
    MembershipFailed,
    MemberState,
    SendSync,
)
from barnabas.client.values import GroupMetadata
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError, error_code
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.wire.messages.join_group import JoinGroupResponse
from barnabas.protocol.wire.messages.sync_group import SyncGroupResponse

log = logging.getLogger("barnabas.client")

JOIN_SLACK_MS: Final = 5_000
"""The coordinator answers a join at the latest at the rebalance time-out. The member waits this much longer."""


class ClassicCoordinator(ConsumerCoordinator):
    """A member of a classic group, which may also be the leader of the group."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        member: ClassicMember,
        timing: GroupTiming,
        *,
        wake: Callable[[], None],
        before_revoke: Callable[[], Any],
    ) -> None:
        super().__init__(cluster, subscription, member.options, timing, wake=wake, before_revoke=before_revoke)
        self.member = member
        self._heartbeat_s = timing.heartbeat_interval_ms / 1000.0
        self._joining: asyncio.Task[None] | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._outcome: Assigned | None = None
        self._lost = False
        self._counts: dict[str, int] = {}
        self._reason: str | None = None
        self._metadata = GroupMetadata(self.options.group_id, group_instance_id=self.options.group_instance_id)

    @property
    def metadata(self) -> GroupMetadata:
        return self._metadata

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.member.owned

    # -- called from poll ------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        self._polled_at = self._cluster.now()
        self._raise_failure()
        await self._look_for_topics()
        self._look_for_changes()
        while self._change.is_under_way or self._lost or self._outcome is not None or self._unannounced is not None:
            await self._change.run(self._take_changes)
        if self.member.wants_to_join and self._joining is None and self.member.topics:
            if self.member.revoke_before_join():
                await self._change.run(self._revoke_before_joining)
            self._joining = asyncio.get_running_loop().create_task(self._join(), name="barnabas-consumer-join")
            self._joining.add_done_callback(self._on_joined)
        if self._heartbeats is None:
            self._heartbeats = asyncio.get_running_loop().create_task(
                self._send_heartbeats(), name="barnabas-consumer-heartbeats"
            )

    async def _take_changes(self) -> None:
        """Notify the listener of a loss, and take the assignment of the last join."""
        if self._lost:
            if self._outcome is not None:  # lost before it was assigned: the listener was never notified
                never, self._outcome = self._outcome, None
                self.member.owned = never.partitions - never.added | never.revoked
            await self._give_up(self.member.owned, lost=True)
            self._lost = False
        if self._outcome is not None:
            await self._take_assignment()
        elif self._unannounced is not None:
            await self._announce_gain()

    async def _revoke_before_joining(self) -> None:
        await self._give_up(self.member.revoke_before_join(), lost=False)

    def _look_for_changes(self) -> None:
        """Check for new topics and partitions, which may require a rebalance."""
        self.member.on_topics(sorted(self._subscription.topics))
        if self.member.state is MemberState.STABLE and self._counts:
            for topic, count in self._counts.items():
                view = self._cluster.metadata.topics.get(topic)
                if view is not None and view.partitions and len(view.partitions) != count:
                    self._counts = {}
                    self._reason = f"{topic} has {len(view.partitions)} partitions now"
                    self.member.request_rejoin()
                    break

    async def _give_up(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Notify the listener, then remove partitions from the assignment."""
        gone = frozenset(partitions)
        await self._announce_loss(gone, lost=lost)
        kept = self.member.owned - gone
        self.member.owned = kept
        self._subscription.set_partitions(sorted(kept))

    async def _take_assignment(self) -> None:
        """Revoke, then assign. If the listener raises an exception, `_outcome` keeps what is left to do."""
        outcome = self._outcome
        assert outcome is not None
        self._metadata = replace(
            self._metadata, generation_id=self.member.generation_id, member_id=self.member.member_id
        )
        if outcome.revoked:
            self.member.owned = outcome.partitions | outcome.revoked
            await self._give_up(outcome.revoked, lost=False)
        self._outcome = None
        self._subscription.set_partitions(sorted(outcome.partitions))
        await self._announce_gain(outcome.added)

    # -- joining, in a task of its own -----------------------------------------------------------------------------

    async def _join(self) -> None:
        """Send joins and syncs until the member is assigned, or until it must first notify the listener of a loss."""
        attempt = 0
        while True:
            step = await self._join_once()
            if isinstance(step, Assigned):
                self._outcome = step
                return
            if isinstance(step, MembershipFailed):
                raise step.error
            self._note(step)
            if step.lost:
                return  # the listener must be notified before the next join
            if step.wait:
                await self._cluster.backoff(attempt)
                attempt += 1

    async def _join_once(self) -> Assigned | JoinAgain | MembershipFailed:
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
        if not isinstance(step, SendSync):
            return step
        sync = await self._ask(step.request, member.options.rebalance_timeout_ms + JOIN_SLACK_MS)
        if not isinstance(sync, SyncGroupResponse):
            return member.on_disconnected()
        return member.on_sync(sync)

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        await self._cluster.refresh(sorted(topics))
        views = self._cluster.metadata.topics
        return {topic: len(views[topic].partitions) for topic in sorted(topics) if topic in views}

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
                    "%s was not polled for max.poll.interval.ms; the consumer leaves group %s until the next poll",
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
        if isinstance(step, MembershipFailed):
            self._failure = step.error
        else:
            self._note(step)
        self._wake()

    # -- commits and leaving ---------------------------------------------------------------------------------------

    def on_commit_refused(self, code: ErrorCode, sent: GroupMetadata) -> None:
        if (sent.generation_id, sent.member_id) != (self.member.generation_id, self.member.member_id):
            return  # the commit was sent with an earlier identity of this member
        step = self.member.on_heartbeat(code)
        if isinstance(step, JoinAgain):
            self._note(step)

    async def leave(self, reason: str, *, leave: bool | None = None) -> None:
        """Leave the group, so that the other members need not wait for the session time-out.

        A static member sends no request, unless `leave` is True; with `leave` False no member sends one.
        """
        member = self.member
        if leave is None:
            leave = member.options.group_instance_id is None
        if member.member_id and leave:
            request = Versioned(ApiKey.LEAVE_GROUP, lambda version: member.leave_request(version, reason))
            try:
                await self._ask(request, self._heartbeat_s * 1000.0)
            except KafkaError as error:
                log.info("leaving group %s was refused: %s", member.options.group_id, error)
        member.forget()

    async def _stop_tasks(self) -> None:
        tasks = [task for task in (self._heartbeats, self._joining) if task is not None]
        self._heartbeats = self._joining = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self, reason: str = "the consumer is being closed", *, leave: bool | None = None) -> None:
        await self._stop_tasks()
        try:
            await self._change.settle()
            if self.member.owned:
                await self._change.run(lambda: self._give_up(self.member.owned, lost=self._lost))
        finally:
            await self.leave(reason, leave=leave)
