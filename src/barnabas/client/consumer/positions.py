"""Shell: finds missing positions: from the group's committed offsets, else from the reset policy."""

from __future__ import annotations

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.subscription import ResetPolicy, SubscriptionState
from barnabas.client.errors import NoOffsetError
from barnabas.client.offsets import fetch_group_offsets, list_offsets
from barnabas.client.values import LATEST, IsolationLevel, OffsetAndTimestamp
from barnabas.core.clock import Clock
from barnabas.core.errors import KafkaError
from barnabas.core.ids import NO_TOPIC_ID


class Positions:
    """Finds the positions of partitions without one: `poll` runs `update` in the background until all have one."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: SubscriptionState,
        group_id: str | None,
        reset_policy: ResetPolicy,
        isolation: IsolationLevel,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._group_id = group_id
        self._reset_policy = reset_policy
        self._isolation = isolation
        self._clock = clock

    def has_work(self) -> bool:
        return bool(self._subscription.without_position()) or bool(self._subscription.to_reset(self._cluster.now()))

    def next_retry(self) -> float | None:
        now = self._cluster.now()
        return min(
            (s.retry_at for s in self._subscription.partitions.values() if s.reset_to is not None and s.retry_at > now),
            default=None,
        )

    async def update(self) -> None:
        """Find the missing positions. Raises NoOffsetError, and KafkaError for fatal errors."""
        await self._from_commits()
        await self._from_timestamps()

    async def _from_commits(self) -> None:
        version = self._subscription.version
        missing = [state.partition for state in self._subscription.without_position()]
        if not missing:
            return
        found = {}
        if self._group_id is not None:
            found = await fetch_group_offsets(self._cluster, self._group_id, missing, require_stable=True)
            if version != self._subscription.version:
                return  # the assignment has changed in the meantime; the next poll tries again
        topic_ids = {p.topic: self._cluster.metadata.topic_id(p.topic) for p in missing}
        orphans = []
        for state in self._subscription.without_position():
            commit = found.get(state.partition)
            if isinstance(commit, KafkaError):
                raise commit
            if commit is not None:
                known = commit.topic_id if commit.topic_id != NO_TOPIC_ID else topic_ids[state.partition.topic]
                state.seek(commit.offset, commit.leader_epoch, known)
            elif self._reset_policy.is_none:
                orphans.append(state.partition)
            else:
                state.reset(self._reset_policy.timestamp_at(self._clock.now_ms()))
        if orphans:
            raise NoOffsetError(orphans)

    async def _from_timestamps(self) -> None:
        now = self._cluster.now()
        wanted = {s.partition: s.reset_to for s in self._subscription.to_reset(now) if s.reset_to is not None}
        if not wanted:
            return
        topic_ids = {p.topic: self._cluster.metadata.topic_id(p.topic) for p in wanted}
        found = await list_offsets(self._cluster, wanted, isolation=self._isolation)
        beyond = [p for p, a in found.items() if isinstance(a, OffsetAndTimestamp) and a.offset < 0]
        if beyond:  # no record is at or after that time: use the end
            found.update(await list_offsets(self._cluster, dict.fromkeys(beyond, LATEST), isolation=self._isolation))
        for partition, answer in found.items():
            state = self._subscription.partitions.get(partition)
            if state is None or state.reset_to != wanted[partition]:
                continue
            if not isinstance(answer, KafkaError):
                state.seek(answer.offset, answer.leader_epoch, topic_ids[partition.topic])
                self._cluster.problems.solved(f"partition {partition}")
            elif answer.retriable:
                self._cluster.problems.note(f"partition {partition}", answer, self._cluster.now())
                delay = self._cluster.options.retry_backoff.delay_ms(0, self._cluster.rng)
                state.retry_at = self._cluster.now() + delay / 1000.0
            else:
                raise answer
