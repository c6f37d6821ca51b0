"""Shell: a consumer's side of group membership: what both protocols share, and the rebalance listener.

The machines in `membership/` decide; `classic_coordinator.py` and `consumer_coordinator.py` carry their requests to the
coordinator, on a connection of their own (a join may stay unanswered for as long as a rebalance takes). Listeners are
called from `poll` alone, so a user never sees partitions come or go while handling records.
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
from barnabas.client.consumer.subscription import Mode, SubscriptionState
from barnabas.client.errors import CommitFailedError
from barnabas.client.membership.classic import MembershipOptions
from barnabas.client.offsets import commit_group_offsets
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


@dataclass(frozen=True, slots=True)
class GroupTiming:
    """The consumer's settings that say when, and which topics a pattern leaves out."""

    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    exclude_internal_topics: bool = True


class ConsumerCoordinator(ABC):
    """Keeps one consumer in its group. Everything runs on the consumer's loop."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        options: MembershipOptions,
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

    @property
    @abstractmethod
    def metadata(self) -> GroupMetadata:
        """Who we were in the group when we were given what we read: who has been fenced since, and knows it already,
        commits as who it was, and is refused (Java's `groupMetadata`). A commit in nobody's name is not."""

    @property
    @abstractmethod
    def owned(self) -> frozenset[TopicPartition]:
        """What the listener has been told to be ours."""

    @abstractmethod
    async def poll(self) -> None:
        """One step: tell the listener what has happened, and join when that is due. Never waits for the group."""

    @abstractmethod
    async def close(self, reason: str = "the consumer is being closed", *, leave: bool | None = None) -> None:
        """Revoke, leave, and end the tasks. `leave`: None leaves unless the member is static (KIP-1092)."""

    @abstractmethod
    def on_commit_refused(self, code: ErrorCode, sent: GroupMetadata) -> None:
        """A commit that was sent as `sent` was refused with a code that says that the group has moved on."""

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], *, deadline: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit as the member we are. Raises CommitFailedError when the group has moved on without us."""
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
        """With a pattern of ours: which topics it covers now."""
        subscription = self._subscription
        if subscription.mode is not Mode.PATTERN:
            return
        metadata = self._cluster.metadata
        oldest = self._cluster.now() - self._cluster.options.metadata_max_age_ms / 1000.0
        if (
            self._metadata_version < 0
            or min((view.updated_at for view in metadata.topics.values()), default=oldest) < oldest
        ):
            await self._cluster.refresh(None)
        if self._metadata_version != metadata.version:
            self._metadata_version = metadata.version
            exclude = self._timing.exclude_internal_topics
            subscription.match([n for n in metadata.topics if not (exclude and n in INTERNAL_TOPICS)])

    async def _announce_loss(self, partitions: Iterable[TopicPartition], *, lost: bool) -> None:
        """Tell the listener, having stopped giving out records of these partitions."""
        gone = sorted(partitions)
        if not gone:
            return
        for partition in gone:
            state = self._subscription.partitions.get(partition)
            if state is not None:
                state.revoking = True
        if lost:
            await call_listener(self.listener.on_partitions_lost, gone)
        else:
            await self._before_revoke()
            await call_listener(self.listener.on_partitions_revoked, gone)

    async def _ask(self, request: Any, timeout_ms: float | None = None) -> Any:
        """The coordinator's answer, or None when it cannot be reached."""
        group_id = self.options.group_id
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
        connection = await self._cluster.connection(broker_id, deadline, purpose=PURPOSE)
        if isinstance(request, Versioned):
            version = connection.choose_version(request.api_key)
            return await connection.send(request.build(version), version, deadline)
        version = connection.choose_version(ApiKey(schema_of(request).key))
        return await connection.send(request, version, deadline)


async def call_listener(callback: Callable[[list[TopicPartition]], Any], partitions: list[TopicPartition]) -> None:
    """A listener's method, plain or async."""
    result = callback(partitions)
    if inspect.isawaitable(result):
        await result
