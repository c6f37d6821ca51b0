"""Shell: a consumer's commits: on request, every `auto.commit.interval.ms`, and before partitions are revoked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.coordinator import ConsumerCoordinator
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.offsets import commit_group_offsets, exact_offsets
from barnabas.client.values import OffsetAndMetadata
from barnabas.core.config import ConfigError
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

log = logging.getLogger("barnabas.client")

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]
REVOKE_TIMEOUT_MS: Final = 5_000
"""How long a rebalance or `close` may wait for commits."""


class Commits:
    """Commits as a member of the group, or without membership if partitions were assigned manually."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        group_id: str | None,
        *,
        interval_ms: int | None,
        timeout_ms: int,
        coordinator: Callable[[], ConsumerCoordinator | None],
    ) -> None:
        self.next_at: float | None = None
        """The time of the next automatic commit; None before the first check."""
        self._cluster = cluster
        self._subscription = subscription
        self._group_id = group_id
        self._interval_s = None if interval_ms is None or group_id is None else interval_ms / 1000.0
        self._timeout_ms = timeout_ms
        self._coordinator = coordinator
        self._queued: dict[TopicPartition, OffsetAndMetadata] = {}

    @property
    def automatic(self) -> bool:
        return self._interval_s is not None

    def is_due(self) -> bool:
        """Whether an automatic commit is due: true once in each interval."""
        if self._interval_s is None:
            return False
        now = self._cluster.now()
        due = self.next_at is not None and now >= self.next_at
        if due or self.next_at is None:
            self.next_at = now + self._interval_s
        return due

    def require_group(self) -> str:
        if self._group_id is None:
            raise ConfigError("Committed offsets belong to a group: set group.id.")
        return self._group_id

    def exact(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit: `offsets`, or the positions behind what the program has received if that is None."""
        if offsets is None:
            return self._subscription.all_returned()
        return exact_offsets(offsets, self._subscription.topic_ids())

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float | None = None) -> None:
        """Commit. Raises CommitFailedError after a rebalance, or the first error of a partition."""
        if not offsets:
            return
        limit = self._cluster.deadline(self._timeout_ms) if deadline is None else deadline
        coordinator = self._coordinator()
        if coordinator is not None and self._subscription.uses_group:
            results = await coordinator.commit(dict(offsets), deadline=limit)
        else:
            results = await commit_group_offsets(self._cluster, self.require_group(), offsets, deadline=limit)
        for error in results.values():
            if error is not None:
                raise error

    async def commit_quietly(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: float) -> None:
        """Commit, and only log a failure, because the next commit of the positions makes up for this one."""
        try:
            await self.commit(offsets, self._cluster.deadline(timeout_ms))
        except KafkaError as error:
            log.warning("committing offsets of group %s failed: %s", self._group_id, error)

    def queue(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Keep these offsets for `commit_queued`. A later offset of a partition replaces an earlier one."""
        self._queued.update(offsets)

    async def commit_queued(self) -> None:
        """Commit the queued offsets, one request after the other, until none is left. A failure is only logged."""
        while self._queued:
            offsets, self._queued = self._queued, {}
            await self.commit_quietly(offsets, self._timeout_ms)

    async def before_leaving(self, member: ConsumerCoordinator, left: SubscriptionState) -> None:
        """Commit the positions of a former subscription as the member that is about to leave (with auto-commit)."""
        if self.automatic and (offsets := left.all_consumed()):
            try:
                await member.commit(offsets, deadline=self._cluster.deadline(REVOKE_TIMEOUT_MS))
            except KafkaError as error:
                log.warning("committing offsets of group %s failed: %s", self._group_id, error)

    async def before_revoke(self) -> None:
        """Commit before partitions are revoked, because their next owners continue from the committed offsets."""
        if self.automatic:
            await self.commit_quietly(self._subscription.all_consumed(), REVOKE_TIMEOUT_MS)
