"""Shell: measures the cluster at intervals through the admin client, into a `SampleRing`.

One sample costs a Metadata request, two ListOffsets requests to each broker, DescribeLogDirs to each broker, and
OffsetFetch for each group; brokers of Barnabas also get requests for their cluster links. The cost does not depend on
the number of people who use the console.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.metadata import TopicDescription
from barnabas.client.values import (
    LATEST,
    ClusterDescription,
    GroupListing,
    GroupState,
    IsolationLevel,
    LogDirDescription,
)
from barnabas.console.sampling.link_samples import LinkSample, LinkSampler
from barnabas.console.sampling.ring import SampleRing, SeriesName
from barnabas.console.sampling.stalls import StallWatch
from barnabas.console.settings import SamplingLimits
from barnabas.core.clock import Clock
from barnabas.core.errors import BarnabasError, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known
from barnabas.core.telemetry import get_logger

log = get_logger("barnabas.console")

STALLED_AFTER_MS: Final = 60_000
"""The time after which a position that does not move is a problem."""
_GROUPS_MAX: Final = 1_000
_GROUPS_AT_ONCE: Final = 8
_PAUSE_S: Final = 0.5
"""The shortest time between two samples."""
_DESCRIBE_MS: Final = 3_000

MESSAGES: Final[SeriesName] = ("cluster", "end_offset")
BYTES: Final[SeriesName] = ("cluster", "bytes")
UNDER_REPLICATED: Final[SeriesName] = ("cluster", "under_replicated")
OFFLINE: Final[SeriesName] = ("cluster", "offline")
LAG: Final[SeriesName] = ("cluster", "lag")
BROKERS: Final[SeriesName] = ("cluster", "brokers")


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The newest sample: what the list pages show without asking the cluster again."""

    at_ms: int = 0
    cluster: ClusterDescription | None = None
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    log_dirs: Mapping[int, Mapping[str, LogDirDescription | KafkaError]] = field(default_factory=dict)
    topic_bytes: Mapping[str, int] = field(default_factory=dict)
    groups: Sequence[GroupListing] = ()
    lags: Mapping[str, int] = field(default_factory=dict)
    held_back: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Partitions whose last stable offset stands still below the end: (offset, time since when)."""
    stalled_groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Groups with members and lag that commit nothing: (sum of the committed offsets, time since when)."""
    stalled_partitions: Mapping[tuple[str, TopicPartition], tuple[int, int]] = field(default_factory=dict)
    """Partitions of groups with members for which nothing is committed: (committed offset, time since when). A lag of
    one record does not count: it may be the marker of a transaction, which some clients do not commit."""
    links: Mapping[str, LinkSample] = field(default_factory=dict)
    problem: str = ""
    """Why the cluster could not be measured; empty if it could. All else but the cluster is then of an older sample."""


class Sampler:
    """Owns the ring. `run` measures until it is cancelled; `take` measures once."""

    def __init__(self, admin: AsyncAdmin, limits: SamplingLimits, clock: Clock) -> None:
        self._admin = admin
        self._limits = limits
        self._clock = clock
        self.ring = SampleRing(limits.samples, limits.series)
        self.sample = ClusterSample()
        self._stable = StallWatch[TopicPartition]()
        self._committed = StallWatch[str]()
        self._positions = StallWatch[tuple[str, TopicPartition]]()
        self._links = LinkSampler(admin)
        self._wake = asyncio.Event()
        self._first = asyncio.Event()

    def wake(self) -> None:
        """Measure soon, because something was changed."""
        self._wake.set()

    async def first(self) -> None:
        """Wait until the cluster was measured, or could not be measured, for the first time."""
        await self._first.wait()

    async def run(self) -> None:
        """Measure for ever. A failure is a gap in the charts, and its text is on the overview."""
        while True:
            began = self._clock.monotonic()
            try:
                await self.take()
            except (BarnabasError, TimeoutError) as error:
                self.ring.add(self._clock.now_ms(), {})
                await self._fail(str(error) or type(error).__name__)
            self._first.set()
            partitions = len(self.sample.end_offsets)
            interval_s = max(self._limits.interval_s, partitions / self._limits.partitions_per_second)
            wait_s = max(interval_s - (self._clock.monotonic() - began), _PAUSE_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
                    await asyncio.sleep(_PAUSE_S)
            self._wake.clear()

    async def _fail(self, problem: str) -> None:
        """Keep the older numbers, with the reason why there are no newer ones. The list of brokers is new."""
        cluster = self.sample.cluster
        with contextlib.suppress(BarnabasError, TimeoutError):
            cluster = await self._admin.describe_cluster(include_fenced_brokers=True, timeout_ms=_DESCRIBE_MS)
        self.sample = replace(
            self.sample, at_ms=self.sample.at_ms or self._clock.now_ms(), cluster=cluster, problem=problem
        )

    async def take(self) -> None:
        """Measure once. Raises BarnabasError if the cluster does not answer."""
        admin = self._admin
        cluster = await admin.describe_cluster(include_fenced_brokers=True)
        names = [t.name for t in await admin.list_topics(include_internal=True)]
        described = await admin.describe_topics(names)
        topics = {name: view for name, view in described.items() if not isinstance(view, KafkaError)}
        ends = await self._end_offsets(topics, IsolationLevel.READ_UNCOMMITTED)
        stable = await self._end_offsets(topics, IsolationLevel.READ_COMMITTED)
        log_dirs = await self._log_dirs(cluster)
        topic_bytes = _topic_bytes(topics, log_dirs)
        groups = [g for g in await admin.list_groups() if g.group_id]
        lags, committed = await self._lags(groups, topics, ends)
        links = await self._links.take()
        now_ms = self._clock.now_ms()
        self._stable.observe(now_ms, {p: offset for p, offset in stable.items() if offset < ends.get(p, 0)})
        reading = {g.group_id for g in groups if g.state is GroupState.STABLE and lags.get(g.group_id)}
        sums: dict[str, int] = dict.fromkeys(reading, 0)
        positions: dict[tuple[str, TopicPartition], int] = {}
        for (name, partition), offset in committed.items():
            if name in reading:
                sums[name] += offset
                if ends[partition] - offset > 1:
                    positions[name, partition] = offset
        self._committed.observe(now_ms, sums)
        self._positions.observe(now_ms, positions)
        self.sample = ClusterSample(
            now_ms,
            cluster,
            topics,
            ends,
            log_dirs,
            topic_bytes,
            groups,
            lags,
            self._stable.stalled(now_ms, STALLED_AFTER_MS),
            self._committed.stalled(now_ms, STALLED_AFTER_MS),
            self._positions.stalled(now_ms, STALLED_AFTER_MS),
            links,
        )
        self.ring.add(self.sample.at_ms, _values(self.sample))

    async def _end_offsets(
        self, topics: Mapping[str, TopicDescription], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        led = [p.topic_partition for view in topics.values() for p in view.partitions if p.leader >= 0]
        answers = await self._admin.list_offsets(dict.fromkeys(led, LATEST), isolation=isolation) if led else {}
        return {p: answer.offset for p, answer in answers.items() if not isinstance(answer, KafkaError)}

    async def _log_dirs(self, cluster: ClusterDescription) -> dict[int, Mapping[str, LogDirDescription | KafkaError]]:
        ids = [broker.broker_id for broker in cluster.brokers if broker.broker_id not in cluster.fenced]

        async def ask(broker_id: int) -> Mapping[str, LogDirDescription | KafkaError]:
            try:
                return (await self._admin.describe_log_dirs([broker_id]))[broker_id]
            except BarnabasError:  # one broker without an answer must not hide the others
                return {}

        return dict(zip(ids, await asyncio.gather(*map(ask, ids)), strict=True))

    async def _lags(
        self,
        groups: Sequence[GroupListing],
        topics: Mapping[str, TopicDescription],
        ends: Mapping[TopicPartition, int],
    ) -> tuple[dict[str, int], dict[tuple[str, TopicPartition], int]]:
        """The lag of each consumer group, and its committed offsets. The lag is left out if it is unknown: the group
        has committed nothing, or the end of a partition is unknown, because it has no leader.

        Committed offsets are read after the end offsets, so a group that reads to the end has no negative lag: it is
        limited to zero.
        """
        consumers = [g.group_id for g in groups if g.type not in ("share", "streams")][:_GROUPS_MAX]
        lags: dict[str, int] = {}
        offsets: dict[tuple[str, TopicPartition], int] = {}
        waiting = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def ask(group_id: str) -> None:
            async with waiting:
                try:
                    committed = await self._admin.list_group_offsets(group_id)
                except KafkaError:  # not authorized for this group, or it was deleted just now
                    return
            known = {
                p: answer.offset
                for p, answer in committed.items()
                if not isinstance(answer, KafkaError) and answer.offset >= 0 and p.topic in topics
            }
            lag = sum_of_known(None if p not in ends else max(ends[p] - at, 0) for p, at in known.items())
            if lag is not None:
                lags[group_id] = lag
            offsets.update({(group_id, p): offset for p, offset in known.items() if p in ends})

        await asyncio.gather(*map(ask, consumers))
        return lags, offsets


def _topic_bytes(
    topics: Mapping[str, TopicDescription], log_dirs: Mapping[int, Mapping[str, LogDirDescription | KafkaError]]
) -> dict[str, int]:
    """The bytes of each topic, with all its replicas."""
    found = dict.fromkeys(topics, 0)
    for directories in log_dirs.values():
        for directory in directories.values():
            if not isinstance(directory, KafkaError):
                for partition, replica in directory.replicas.items():
                    if partition.topic in found:
                        found[partition.topic] += replica.size_bytes
    return found


def _values(sample: ClusterSample) -> dict[SeriesName, float]:
    """All series of one sample."""
    assert sample.cluster is not None
    partitions = [p for view in sample.topics.values() for p in view.partitions]
    values: dict[SeriesName, float] = {
        UNDER_REPLICATED: sum(len(p.isr) < len(p.replicas) for p in partitions),
        OFFLINE: sum(p.leader < 0 for p in partitions),
        BROKERS: len(sample.cluster.brokers) - len(sample.cluster.fenced),
        BYTES: sum(sample.topic_bytes.values()),
        LAG: sum(sample.lags.values()),
    }
    totals = dict.fromkeys(sample.topics, 0)
    for partition, offset in sample.end_offsets.items():
        totals[partition.topic] = totals.get(partition.topic, 0) + offset
    values[MESSAGES] = sum(total for name, total in totals.items() if not sample.topics[name].is_internal)
    for name, total in totals.items():
        values["topic", name, "end_offset"] = total
        values["topic", name, "bytes"] = sample.topic_bytes.get(name, 0)
    for group_id, lag in sample.lags.items():
        values["group", group_id, "lag"] = lag
    for name, link in sample.links.items():
        if link.lag is not None:
            values["link", name, "lag"] = link.lag
    for broker_id, directories in sample.log_dirs.items():
        known = [d for d in directories.values() if not isinstance(d, KafkaError)]
        values["broker", str(broker_id), "bytes"] = sum(r.size_bytes for d in known for r in d.replicas.values())
    return values
