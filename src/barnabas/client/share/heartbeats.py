"""Shell: keeps a share consumer in its group: heartbeats in a task, as `membership/share_protocol.py` decides."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.consumer.topic_check import TopicCheck
from barnabas.client.errors import BrokerUnreachableError, RequestTimeoutError, UnsupportedApiError
from barnabas.client.membership.classic import MembershipFailed
from barnabas.client.membership.consumer_protocol import Wait
from barnabas.client.membership.share_protocol import ShareMember
from barnabas.core.errors import BarnabasError, KafkaError

log = logging.getLogger("barnabas.client")

PURPOSE: Final = "group"
LEAVE_TIMEOUT_MS: Final = 3_000


class ShareHeartbeats:
    """Sends the heartbeats of a member, whose responses change `member.assigned`; `check` raises `failure`."""

    def __init__(self, cluster: Cluster, member: ShareMember, wake: Callable[[], None]) -> None:
        self.failure: BarnabasError | None = None
        self._cluster = cluster
        self._member = member
        self._wake = wake
        self._kick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._topic_check = TopicCheck(cluster, lambda: frozenset(member.topics), auto_create=False)

    def keep_going(self) -> None:
        """Start the task of the heartbeats if needed, and have a changed subscription sent at once."""
        if self._task is None and self._member.heartbeats:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="barnabas-share-heartbeats")
        if self._member.is_urgent:
            self._kick.set()

    def check(self) -> None:
        """Raise the pending error, if any. A fatal error is raised at every call, other errors once."""
        if self.failure is not None:
            failure = self.failure
            if not self._member.failed:
                self.failure = None
            raise failure

    async def stop(self) -> None:
        """Cancel the task, without a word to the group."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Leave the group."""
        await self.stop()
        request = self._member.leave()
        if request is not None:
            try:
                await self._ask(request, LEAVE_TIMEOUT_MS)
            except KafkaError as error:
                log.info("leaving share group %s was refused: %s", self._member.group_id, error)

    async def _run(self) -> None:
        failures = 0
        while True:
            sent_at = self._cluster.now()
            try:
                failures = 0 if await self._once() else failures + 1
            except KafkaError as error:
                self._fail(error)
                return
            await self._until_due(sent_at, failures)

    async def _once(self) -> bool:
        """Send one heartbeat. Returns False for a retry after a back-off."""
        member = self._member
        response = await self._ask(member.heartbeat())
        if response is None:
            member.on_unanswered()
            return False
        before = member.assigned
        step = member.on_heartbeat(response)
        if isinstance(step, MembershipFailed):
            if member.failed:
                raise step.error
            self.failure = step.error
            self._wake()
            return False
        if isinstance(step, Wait):
            if step.find_coordinator:
                self._cluster.coordinators.forget(CoordinatorType.GROUP, member.group_id)
            return False
        await self._learn_names()
        if self._topic_check.is_due():
            with contextlib.suppress(RequestTimeoutError, BrokerUnreachableError):  # noted as problems
                await self._topic_check.check()
        if member.assigned != before:
            self._wake()
        return True

    async def _learn_names(self) -> None:
        """Fetch the names of the assigned topic ids."""
        metadata = self._cluster.metadata
        if any(metadata.topic_name(partition.topic_id) is None for partition in self._member.assigned):
            try:
                await self._cluster.refresh(sorted(self._member.topics))
            except KafkaError as error:
                log.info("cannot fetch the names of assigned topics now, retrying: %s", error)

    async def _until_due(self, sent_at: float, failures: int) -> None:
        loop = asyncio.get_running_loop()
        options = self._cluster.options
        pause_s = self._member.heartbeat_interval_ms / 1000.0
        if failures:
            pause_s = options.retry_backoff.delay_ms(failures - 1, self._cluster.rng) / 1000.0
        while self._cluster.now() < sent_at + pause_s and (failures or not self._member.is_urgent):
            self._kick.clear()
            timer = loop.call_at(sent_at + pause_s, self._kick.set)
            try:
                await self._kick.wait()
            finally:
                timer.cancel()

    async def _ask(self, request: Any, timeout_ms: float | None = None) -> Any:
        """Send a request to the group's coordinator. Returns None when the coordinator cannot be reached."""
        group_id = self._member.group_id
        try:
            response = await self._cluster.send_coordinator(
                CoordinatorType.GROUP, group_id, request, deadline=self._cluster.deadline(timeout_ms), purpose=PURPOSE
            )
            self._cluster.problems.solved(f"group {group_id!r}")
            return response
        except KafkaError as error:
            if not error.retriable:
                raise
            self._cluster.problems.note(f"group {group_id!r}", error, self._cluster.now())
            self._cluster.coordinators.forget(CoordinatorType.GROUP, group_id)
            return None

    def _fail(self, error: BarnabasError) -> None:
        self._member.failed = True
        self.failure = error
        if isinstance(error, UnsupportedApiError):
            self.failure = UnsupportedApiError(
                f"{error} Share groups need Kafka 4.1, or a broker with share.version=1."
            )
        self._wake()
