"""Machine: translates the committed offsets of groups, exactly where the copied runs are known, else by offset syncs.

Never ahead: a translated offset is at most the offset of the first record that the group has not read.
"""

from __future__ import annotations

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.offsets.runs import CopiedRuns
from barnabas.spark.mirror.offsets.sync_store import OffsetSyncStore


class Translator:
    """Both directions for one pair of clusters. Partitions are those of the source cluster."""

    def __init__(self, store: OffsetSyncStore, runs: CopiedRuns | None = None) -> None:
        self._store = store
        self._runs = runs

    def downstream(self, partition: TopicPartition, upstream: int) -> int | None:
        """As `OffsetSyncStore.downstream`, and exact within the copied runs."""
        found = None if self._runs is None else self._runs.downstream(partition, upstream)
        return self._store.downstream(partition, upstream) if found is None else found

    def upstream(self, partition: TopicPartition, downstream: int) -> int | None:
        """As `OffsetSyncStore.upstream`, and exact within the copied runs."""
        found = None if self._runs is None else self._runs.upstream(partition, downstream)
        return self._store.upstream(partition, downstream) if found is None else found
