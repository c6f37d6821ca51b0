"""Shell: the metrics of coordinators: groups and their lag, transactions, share groups.

The end of a partition may be on another broker. The task `run` asks the leaders every ten seconds, but only while
somebody reads the metrics.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known
from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.server.broker.fetching.session_cache import FetchSessionCache
from barnabas.server.broker.shares import Shares
from barnabas.server.coordination.group.service import GroupCoordinator
from barnabas.server.coordination.transaction.service import TransactionCoordinator
from barnabas.server.coordination.transaction.state import TxnState
from barnabas.server.monitoring.lag import GroupLag, GroupOffset, LagTable
from barnabas.server.monitoring.limits import GROUP_PARTITIONS_MAX, PARTITIONS_AT_ONCE, LeftOut
from barnabas.server.peers.shares import LogEnds

INTERVAL_S: Final = 10.0
_WANTED_S: Final = 180.0
"""For this time after a page of metrics the lags are kept up to date."""
_STATES: Final = {
    "classic": "classic_group_count",
    "consumer": "consumer_group_count",
    "share": "share_group_count",
}


class GroupMonitor:
    """Reads the coordinators of one broker."""

    def __init__(
        self,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        shares: Shares,
        fetch_sessions: FetchSessionCache,
        ends: LogEnds,
        clock: Clock,
        left_out: LeftOut,
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._shares = shares
        self._fetch_sessions = fetch_sessions
        self._ends = ends
        self._clock = clock
        self._left_out = left_out
        self._table = LagTable()
        self._wanted_until = -1.0
        self._wake = asyncio.Event()

    @property
    def lags(self) -> list[GroupLag]:
        """The lags at the last look."""
        return self._table.lags

    async def run(self) -> None:
        """Look at the lags while somebody wants them, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._clock.monotonic() < self._wanted_until:
                await self.look()
                await asyncio.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Compute the lags now."""
        committed: list[GroupOffset] = []
        seen = 0
        for entry in self._committed():
            seen += 1
            if len(committed) < GROUP_PARTITIONS_MAX:
                committed.append(entry)
            if seen % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._left_out.set("group", seen - len(committed))
        wanted = dict.fromkeys(entry.partition for entry in committed)
        ends = await self._ends.ends(wanted)
        self._table.update(self._clock.monotonic(), committed, ends)

    def _committed(self) -> Iterator[GroupOffset]:
        for _, shard in list(self._groups.active_shards()):
            for group_id in shard.store.groups():
                for (topic, partition), offset in shard.store.view(group_id, committed=True).items():
                    yield GroupOffset(group_id, TopicPartition(topic, partition), offset.offset)

    # ---- the page

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        self._wanted_until = self._clock.monotonic() + _WANTED_S
        self._wake.set()
        yield from self._collect_groups(page)
        yield from self._collect_lags(page)
        yield from self._collect_transactions(page)
        shares = self._shares
        page.family("barnabas_share_partitions").add(len(shares.partitions))
        page.family("barnabas_share_groups_sessions").add(len(shares.sessions))
        sessions = self._fetch_sessions
        page.family("kafka_server_fetchsessioncache_numincrementalfetchsessions").add(len(sessions))
        page.family("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached").add(sessions.partition_count)
        yield

    def _collect_groups(self, page: Exposition) -> Iterator[None]:
        from barnabas.server.coordination.group.groups import state_name, type_of  # not at the start of a node

        kinds: Counter[str] = Counter(dict.fromkeys(_STATES, 0))
        states: Counter[tuple[str, str]] = Counter()
        members = page.family("kafka_consumergroup_members")
        shards = 0
        for _, shard in list(self._groups.active_shards()):
            shards += 1
            for count, (group_id, group) in enumerate(list(shard.table.by_id.items())):
                kind = type_of(group).value
                kinds[kind] += 1
                states[kind, state_name(group)] += 1
                if len(members.lines) < GROUP_PARTITIONS_MAX:
                    members.add(len(group.members), label_text(consumergroup=group_id))
                if count % PARTITIONS_AT_ONCE == 0:
                    yield
        prefix = "kafka_server_group_coordinator_metrics_"
        for kind_name, count in sorted(kinds.items()):
            page.family(prefix + "group_count").add(count, label_text(protocol=kind_name))
        for (kind, state), count in sorted(states.items(), key=lambda item: item[0]):
            page.family(prefix + _STATES[kind]).add(count, label_text(state=state.lower()))
        coordinators = page.family("barnabas_coordinator_partitions")
        coordinators.add(shards, label_text(coordinator="group", state="active"))

    def _collect_lags(self, page: Exposition) -> Iterator[None]:
        offset = page.family("kafka_consumergroup_current_offset")
        lag = page.family("kafka_consumergroup_lag")
        seconds = page.family("barnabas_consumergroup_lag_seconds")
        sums: dict[tuple[str, str], list[int | None]] = {}
        offsets: Counter[tuple[str, str]] = Counter()
        for count, entry in enumerate(self._table.lags, 1):
            name = entry.partition
            labels = label_text(consumergroup=entry.group, topic=name.topic, partition=str(name.partition))
            offset.add(entry.offset, labels)
            offsets[entry.group, name.topic] += entry.offset
            sums.setdefault((entry.group, name.topic), []).append(entry.records)
            if entry.records is not None:
                lag.add(entry.records, labels)
                seconds.add(entry.seconds, labels)
            if count % PARTITIONS_AT_ONCE == 0:
                yield
        offset_sum = page.family("kafka_consumergroup_current_offset_sum")
        for (group, topic), total in offsets.items():
            offset_sum.add(total, label_text(consumergroup=group, topic=topic))
        lag_sum = page.family("kafka_consumergroup_lag_sum")
        for (group, topic), records in sums.items():
            total_lag = sum_of_known(records)
            if total_lag is not None:
                lag_sum.add(total_lag, label_text(consumergroup=group, topic=topic))
        yield

    def _collect_transactions(self, page: Exposition) -> Iterator[None]:
        states: Counter[TxnState] = Counter({TxnState.ONGOING: 0})
        oldest_ms: int | None = None
        shards = 0
        for _, shard in list(self._transactions.active_shards()):
            shards += 1
            for count, txn in enumerate(list(shard.transactions.values())):
                states[txn.state] += 1
                if txn.state is TxnState.ONGOING and (oldest_ms is None or txn.started_ms < oldest_ms):
                    oldest_ms = txn.started_ms
                if count % PARTITIONS_AT_ONCE == 0:
                    yield
        family = page.family("barnabas_transactions")
        for state, count in sorted(states.items()):
            family.add(count, label_text(state=state.label))
        age_ms = 0 if oldest_ms is None else max(self._clock.now_ms() - oldest_ms, 0)
        page.family("barnabas_transactions_oldest_seconds").add(age_ms / 1000)
        coordinators = page.family("barnabas_coordinator_partitions")
        coordinators.add(shards, label_text(coordinator="transaction", state="active"))
        yield
