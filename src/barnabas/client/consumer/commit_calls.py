"""Shell: the consumer's calls about the committed offsets of its group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace

from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.consumer.commits import REVOKE_TIMEOUT_MS, Commits
from barnabas.client.consumer.coordinator import ConsumerCoordinator
from barnabas.client.consumer.handout import Handout
from barnabas.client.consumer.jobs import Jobs
from barnabas.client.consumer.subscription import SubscriptionState
from barnabas.client.offsets import fetch_group_offsets
from barnabas.client.values import GroupMetadata, OffsetAndMetadata
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition


@checks_arguments()
class CommitCalls(ABC):
    """The methods of `AsyncConsumer` that commit positions and read committed offsets."""

    cluster: Cluster
    _commits: Commits
    _coordinator: ConsumerCoordinator | None
    _handout: Handout
    _jobs: Jobs
    _subscription: SubscriptionState

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _deadline(self, timeout_ms: float | None) -> float: ...

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None for a partition without one."""
        wanted = list(partitions)
        found = await fetch_group_offsets(
            self.cluster,
            self._commits.require_group(),
            wanted,
            require_stable=True,
            deadline=self._deadline(timeout_ms),
        )
        results: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition in wanted:
            answer = found.get(partition)
            if isinstance(answer, KafkaError):
                raise answer
            results[partition] = answer
        return results

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit the positions behind the records that the program has received, or these offsets, and wait for the
        result. Raises CommitFailedError after a rebalance.

        Offsets of earlier calls of `commit_nowait` are committed first.
        """
        exact, deadline = self._offsets_to_commit(offsets), self._deadline(timeout_ms)
        await self._jobs.finish("commit", deadline)
        await self._commits.commit(exact, deadline)

    def commit_nowait(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit the positions, as `commit` does, or these offsets, in the background, and log a failure.

        While an earlier commit in the background is still running, the offsets are kept, and are committed after it;
        `commit` and `close` wait for them.
        """
        self._commit_in_background(self._offsets_to_commit(offsets))

    def _offsets_to_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._check_open()
        self._commits.require_group()
        if offsets is None:
            self._handout.ask()
        return self._commits.exact(offsets)

    def _commit_in_background(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._commits.queue(offsets)
        self._jobs.start("commit", self._commits.commit_queued)

    def group_metadata(self) -> GroupMetadata:
        """The identity of this member, with which a transactional producer commits offsets for the group."""
        member = self._coordinator.metadata if self._coordinator else GroupMetadata(self._commits.require_group())
        return replace(member, topic_ids=self._subscription.topic_ids())

    async def _before_revoke(self) -> None:
        """Finish the commits in the background, then commit the positions (with auto-commit)."""
        await self._jobs.finish("commit", self.cluster.deadline(REVOKE_TIMEOUT_MS))
        await self._commits.before_revoke()
