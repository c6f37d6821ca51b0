"""Shell: membership by the new protocol (KIP-848): heartbeats in a task, reconciliation in `poll`.

`membership/consumer_protocol.py` decides. The task sends a heartbeat when one is due or urgent, and fetches the names
of topics that were assigned by id. `poll` calls the listener and changes the assignment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.consumer.coordinator import ConsumerCoordinator, GroupTiming
from barnabas.client.consumer.subscription import SubscriptionMode, SubscriptionState
from barnabas.client.errors import CommitFailedError, UnsupportedApiError
from barnabas.client.membership.classic import MembershipFailed
from barnabas.client.membership.consumer_protocol import ConsumerMember, Phase, Wait
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

log = logging.getLogger("barnabas.client")

LEAVE_TIMEOUT_MS: Final = 3_000
"""How long `close` waits for the last heartbeat. Without that heartbeat the session times out."""


class ConsumerProtocolCoordinator(ConsumerCoordinator):
    """A member whose assignment the broker computes."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        member: ConsumerMember,
        timing: GroupTiming,
        *,
        wake: Callable[[], None],
        before_revoke: Callable[[], Any],
    ) -> None:
        super().__init__(cluster, subscription, member.options, timing, wake=wake, before_revoke=before_revoke)
        self.member = member
        self._task: asyncio.Task[None] | None = None
        self._kick = asyncio.Event()
        self._fatal: BarnabasError | None = None
        self._metadata = GroupMetadata(
            self.options.group_id, member_id=member.member_id, group_instance_id=self.options.group_instance_id
        )

    @property
    def metadata(self) -> GroupMetadata:
        return self._metadata

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.member.partitions

    # -- called from poll ------------------------------------------------------------------------------------------

    async def poll(self) -> None:
        self._polled_at = self._cluster.now()
        if self._fatal is not None:
            raise self._fatal
        self._raise_failure()
        await self._look_for_topics()
        member = self.member
        member.subscribe(sorted(self._subscription.topics), self._subscription.remote_pattern)
        if (
            member.phase in (Phase.FENCED, Phase.STALE, Phase.RECONCILING)
            or self._change.is_under_way
            or self._unannounced is not None
        ):
            await self._change.run(self._take_changes)
        if self._task is None and member.phase is not Phase.UNSUBSCRIBED:
            self._task = asyncio.get_running_loop().create_task(self._heartbeat(), name="barnabas-consumer-heartbeats")
        if member.is_urgent:
            self._kick.set()

    async def _take_changes(self) -> None:
        member = self.member
        if member.phase in (Phase.FENCED, Phase.STALE):
            await self._announce_loss(member.partitions, lost=True)
            self._subscription.set_partitions([])
            member.rejoin()
        if self._unannounced is not None:
            await self._announce_gain()
        if member.phase is Phase.RECONCILING:
            await self._reconcile()

    async def _reconcile(self) -> None:
        member = self.member
        step = member.reconcile(self._names())
        if step is None:
            return
        try:
            if step.revoked:
                await self._announce_loss(step.revoked, lost=False)
                member.on_revoked(step)
            if not member.is_current(step):
                return  # fenced in the meantime: the next poll reports the remaining partitions as lost
            member.on_assigned(step)
            # Added partitions are removed first: those of a topic that was created again must start without a position.
            self._subscription.set_partitions(sorted(member.partitions - step.added))
            self._subscription.set_partitions(sorted(member.partitions))
            if self._is_remote:
                self._subscription.topics |= {partition.topic for partition in step.added}
            await self._announce_gain(step.added)
        except BaseException:  # of the user's function; cancellation, too
            if member.is_current(step):
                member.on_interrupted()
            raise
        if member.is_current(step):
            member.on_reconciled()

    @property
    def _is_remote(self) -> bool:
        return self._subscription.mode is SubscriptionMode.REMOTE_PATTERN

    def _names(self) -> dict[UUID, str]:
        metadata = self._cluster.metadata
        found = {topic_id: metadata.topic_name(topic_id) for topic_id in sorted(self.member.unresolved)}
        return {topic_id: name for topic_id, name in found.items() if name is not None}

    # -- heartbeats, in a task of their own ------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        member = self.member
        sent_at = self._cluster.now()
        failures = 0
        while True:
            await self._until_due(sent_at, failures)
            sent_at = self._cluster.now()
            if sent_at - self._polled_at >= self._max_poll_s:
                log.warning(
                    "%s was not polled for max.poll.interval.ms; the consumer leaves group %s until the next poll",
                    member.member_id,
                    self.options.group_id,
                )
                request = member.stop_polling()
                if request is not None:
                    await self._quietly(request)
                self._wake()
                continue
            try:
                failures = 0 if await self._heartbeat_once() else failures + 1
            except KafkaError as error:
                self._fail(error)
                return

    async def _heartbeat_once(self) -> bool:
        """Send one heartbeat. Returns False for a retry after a back-off. Raises KafkaError for fatal errors."""
        member = self.member
        response = await self._ask(member.heartbeat())
        if response is None:
            member.on_unanswered()
            return False
        step = member.on_heartbeat(response)
        if member.is_member:
            self._metadata = replace(self._metadata, generation_id=member.epoch, member_id=member.member_id)
        if isinstance(step, MembershipFailed):
            if member.phase is Phase.FATAL:
                raise step.error
            self._failure = step.error
            self._wake()
            return False
        if isinstance(step, Wait):
            if step.find_coordinator:
                self._cluster.coordinators.forget(CoordinatorType.GROUP, self.options.group_id)
            return False
        if member.unresolved - self._names().keys():
            await self._learn_names()
        if member.phase is not Phase.STABLE:
            self._wake()
        return True

    async def _learn_names(self) -> None:
        try:
            await self._cluster.refresh(None if self._is_remote else sorted(self._subscription.topics))
            if self.member.unresolved - self._names().keys():
                await self._cluster.refresh(None)
        except KafkaError as error:
            log.info("cannot fetch the names of assigned topics now, retrying: %s", error)

    async def _until_due(self, sent_at: float, failures: int) -> None:
        """Wait until the next heartbeat is due, or until max.poll.interval.ms has passed since the last poll.

        An urgent heartbeat is due at once, a retry after a back-off, and none is due without membership.
        """
        loop = asyncio.get_running_loop()
        options = self._cluster.options
        pause_s = options.retry_backoff.delay_ms(failures - 1, self._cluster.rng) / 1000.0 if failures else 0.0
        while True:
            self._kick.clear()
            if not self.member.heartbeats:
                await self._kick.wait()
                continue
            if failures:
                due = sent_at + pause_s
            elif self.member.is_urgent:
                return
            else:
                due = min(sent_at + self.member.heartbeat_interval_ms / 1000.0, self._polled_at + self._max_poll_s)
            if self._cluster.now() >= due:
                return
            timer = loop.call_at(due, self._kick.set)
            try:
                await self._kick.wait()
            finally:
                timer.cancel()

    def _fail(self, error: BarnabasError) -> None:
        self.member.phase = Phase.FATAL
        self._fatal = error
        if isinstance(error, UnsupportedApiError):
            self._fatal = UnsupportedApiError(f"{error} Set group.protocol=classic to use this cluster.")
        self._wake()

    # -- commits and leaving ---------------------------------------------------------------------------------------

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, deadline: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit as a member. If the member epoch is outdated, wait for the new epoch and retry."""
        limit = self._cluster.deadline() if deadline is None else deadline
        attempt = 0
        while True:
            try:
                return await super().commit(offsets, deadline=limit)
            except CommitFailedError as error:
                stale = error.code is ErrorCode.STALE_MEMBER_EPOCH and self.member.is_member
                if not stale or self._cluster.now() >= limit:
                    raise
            await self._cluster.backoff(attempt, limit)
            attempt += 1

    def on_commit_refused(self, code: ErrorCode, sent: GroupMetadata) -> None:
        """Send a heartbeat with all fields at once: its response shows the state of the member."""
        self.member.on_unanswered()
        self._kick.set()

    async def _quietly(self, request: Any) -> None:
        try:
            await self._ask(request, LEAVE_TIMEOUT_MS)
        except KafkaError as error:
            log.info("leaving group %s was refused: %s", self.options.group_id, error)

    async def _stop_tasks(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self, reason: str = "the consumer is being closed", *, leave: bool | None = None) -> None:
        await self._stop_tasks()
        try:
            await self._change.settle()
            await self._change.run(lambda: self._announce_loss(self.member.partitions, lost=not self.member.is_member))
            self._subscription.set_partitions([])
        finally:
            request = self.member.leave(static_stays=leave is not True)
            if request is not None and (leave is not False or self.options.group_instance_id is not None):
                await self._quietly(request)
