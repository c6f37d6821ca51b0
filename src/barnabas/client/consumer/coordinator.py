"""Shell: the common part of group membership in both protocols, and the rebalance listener.

The machines in `membership/` decide. `classic_coordinator.py` and `consumer_coordinator.py` send the requests of the
machines to the broker that coordinates the group, on a separate connection, because a join is answered only at the end
of a rebalance. Listeners are called only from `poll`, so that the assignment never changes while the user handles
records.
"""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.client.cluster.versions import Versioned
from barnabas.client.consumer.subscription import SubscriptionMode, SubscriptionState
from barnabas.client.errors import CommitFailedError
from barnabas.client.membership.classic import MembershipConfig
from barnabas.client.offsets import commit_group_offsets
from barnabas.client.resumed import Resumed
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.schema import schema_of

log = logging.getLogger("barnabas.client")

PURPOSE: Final = "group"
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
    """Override the methods that you need; they may be plain or `async`. `poll` calls them.

    A method that raises an exception makes `poll` raise it, and the next `poll` calls the method again. A `poll` that
    is cancelled does not cancel a method: the next `poll` waits for its end.

    `on_partitions_revoked` is called before partitions move to other members, and can commit. `on_partitions_lost` is
    called when other members may already own them, so that a commit fails. By default it calls
    `on_partitions_revoked`.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        """These partitions were added."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        """These partitions will be revoked after this call."""

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Any:
        """These partitions were lost before `on_partitions_revoked` could be called.

        Other members may own them already. The default calls `on_partitions_revoked`.
        """
        return self.on_partitions_revoked(partitions)


@dataclass(frozen=True, slots=True)
class GroupTiming:
    """The consumer's configs of times, and whether a pattern excludes internal topics."""

    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    exclude_internal_topics: bool = True


class ConsumerCoordinator(ABC):
    """Keeps one consumer in its group. Everything runs on the consumer's loop."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        options: MembershipConfig,
        timing: GroupTiming,
        *,
        wake: Callable[[], None],
        before_revoke: Callable[[], Any],
    ) -> None:
        self.listener: RebalanceListener = RebalanceListener()
        self.options = options
        self._cluster = cluster
        self._subscription = subscription
        self._timing = timing
        self._max_poll_s = timing.max_poll_interval_ms / 1000.0
        self._wake = wake
        self._before_revoke = before_revoke
        self._polled_at = cluster.now()
        self._failure: BarnabasError | None = None
        self._metadata_version = -1
        self._listed_at: float | None = None
        """The time at which all topics of the cluster were last fetched, for a client-side pattern."""
        self._change: Resumed[None] = Resumed("barnabas-consumer-rebalance")
        """The change of the assignment that is under way, with the calls of the listener. It goes on when the poll that
        has begun it is cancelled, and the next poll waits for it."""
        self._unannounced: frozenset[TopicPartition] | None = None
        """The added partitions for which `on_partitions_assigned` has not returned yet; None if no call is due."""

    @property
    @abstractmethod
    def metadata(self) -> GroupMetadata:
        """The member's identity as of the last assignment (Java's `groupMetadata`).

        A fenced member keeps its old identity, so that the coordinator rejects its commits. A commit without a member
        id would be accepted by a group without members.
        """

    @property
    @abstractmethod
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned to this member."""

    @abstractmethod
    async def poll(self) -> None:
        """Call the listener for pending changes, and start a join when one is due. Never waits for the group."""

    @abstractmethod
    async def close(self, reason: str = "the consumer is being closed", *, leave: bool | None = None) -> None:
        """Revoke, leave, and end the tasks. `leave`: None leaves unless the member is static (KIP-1092)."""

    def detach(self, left: SubscriptionState, before_revoke: Callable[[], Any]) -> None:
        """Prepare for `close`: the consumer has another subscription now, and `left` is the former one."""
        self._subscription = left
        self._before_revoke = before_revoke

    async def stop(self) -> None:
        """Cancel all tasks, without a word to the group."""
        await self._change.stop()
        await self._stop_tasks()

    @abstractmethod
    async def _stop_tasks(self) -> None:
        """Cancel the tasks that send requests."""

    @abstractmethod
    def on_commit_refused(self, code: ErrorCode, sent: GroupMetadata) -> None:
        """Handle the rejection of a commit with the identity `sent`; `code` means that the group has rebalanced."""

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, deadline: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit as a member. Raises CommitFailedError when the group has rebalanced without this member."""
        sent = self.metadata
        try:
            return await commit_group_offsets(self._cluster, sent, offsets, deadline=deadline)
        except KafkaError as error:
            if error.code in _MEMBERSHIP_LOST:
                self.on_commit_refused(error.code, sent)
                raise CommitFailedError(error.code) from error
            raise

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def _look_for_topics(self) -> None:
        """Find the topics that match a client-side pattern now."""
        subscription = self._subscription
        if subscription.mode is not SubscriptionMode.PATTERN:
            return
        metadata = self._cluster.metadata
        now, max_age_s = self._cluster.now(), self._cluster.options.metadata_max_age_ms / 1000.0
        if self._listed_at is None or now - self._listed_at > max_age_s:
            await self._cluster.refresh(None)
            self._listed_at = now
        if self._metadata_version != metadata.version:
            self._metadata_version = metadata.version
            exclude = self._timing.exclude_internal_topics
            subscription.match([n for n in metadata.topics if not (exclude and n in INTERNAL_TOPICS)])

    async def _announce_loss(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Stop returning records of these partitions, and call the listener. If the listener raises an exception, the
        partitions stay assigned, and the next poll calls the listener again."""
        gone = sorted(partitions)
        if not gone:
            return
        states = [state for p in gone if (state := self._subscription.partitions.get(p)) is not None]
        for state in states:
            state.revoking = True
        try:
            if lost:
                await call_listener(self.listener.on_partitions_lost, gone)
            else:
                await self._before_revoke()
                await call_listener(self.listener.on_partitions_revoked, gone)
        except BaseException:  # of the user's function; cancellation, too
            for state in states:
                state.revoking = False
            raise
        if self._unannounced is not None:
            self._unannounced = self._unannounced.difference(gone) or None

    async def _announce_gain(self, added: Iterable[TopicPartition] = ()) -> None:
        """Call the listener for added partitions, and for those of an earlier call that has raised an exception."""
        due = self._unannounced = (self._unannounced or frozenset()) | frozenset(added)
        await call_listener(self.listener.on_partitions_assigned, sorted(due & self.owned))
        self._unannounced = None

    async def _ask(self, request: Any, timeout_ms: float | None = None) -> Any:
        """Send a request to the coordinator. Returns None when the coordinator cannot be reached."""
        group_id = self.options.group_id
        deadline = self._cluster.deadline(timeout_ms)
        try:
            broker_id = await self._cluster.coordinators.find(CoordinatorType.GROUP, group_id, deadline=deadline)
            response = await self._send_to(broker_id, request, deadline)
            self._cluster.problems.solved(f"group {group_id!r}")
            return response
        except KafkaError as error:
            if not error.retriable:
                raise
            self._cluster.problems.note(f"group {group_id!r}", error, self._cluster.now())
            self._cluster.coordinators.forget(CoordinatorType.GROUP, group_id)
            return None

    async def _send_to(self, broker_id: int, request: Any, deadline: float) -> Any:
        connection = await self._cluster.connection(broker_id, deadline, purpose=PURPOSE)
        if isinstance(request, Versioned):
            version = connection.choose_version(request.api_key)
            return await connection.send(request.build(version), version, deadline)
        version = connection.choose_version(ApiKey(schema_of(request).key))
        return await connection.send(request, version, deadline)


async def call_listener(callback: Callable[[list[TopicPartition]], Any], partitions: list[TopicPartition]) -> None:
    """Call a listener's method, plain or async."""
    result = callback(partitions)
    if inspect.isawaitable(result):
        await result
