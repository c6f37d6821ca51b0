"""Shell: the metrics of tiered storage: what was copied, read and deleted, and what is still to be done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.telemetry.exposition import Exposition, escape_label
from barnabas.server.monitoring.limits import PARTITIONS_AT_ONCE, TOPICS_MAX
from barnabas.server.tiering.leaders import TieredLeaders
from barnabas.server.tiering.quotas import RemoteQuota
from barnabas.server.tiering.reading.chunks import ChunkReader
from barnabas.server.tiering.traffic import RemoteTopicTraffic, RemoteTraffic

_PREFIX: Final = "kafka_server_brokertopicmetrics_"
_COUNTERS: Final = (
    ("remotecopybytes_total", "remote_copy_bytes"),
    ("remotecopyrequests_total", "remote_copy_requests"),
    ("remotecopyerrors_total", "remote_copy_errors"),
    ("remotefetchbytes_total", "remote_fetch_bytes"),
    ("remotefetchrequests_total", "remote_fetch_requests"),
    ("remotefetcherrors_total", "remote_fetch_errors"),
    ("remotedeleterequests_total", "remote_delete_requests"),
    ("remotedeleteerrors_total", "remote_delete_errors"),
)
_GAUGES: Final = (
    "remotecopylagbytes",
    "remotecopylagsegments",
    "remotedeletelagbytes",
    "remotedeletelagsegments",
    "remotelogsizebytes",
    "remotelogmetadatacount",
)


class TieredMonitor:
    """Reads tiered storage of one broker."""

    def __init__(
        self,
        traffic: RemoteTraffic,
        leaders: TieredLeaders,
        chunks: ChunkReader,
        fetch_quota: RemoteQuota,
        clock: Clock,
    ) -> None:
        self._traffic = traffic
        self._leaders = leaders
        self._chunks = chunks
        self._quotas = (("copy", leaders.copy_quota), ("fetch", fetch_quota))
        self._clock = clock

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples of all tiered topics, and the sums without a topic."""
        _add_counters(page, self._traffic.all_topics(), "")
        page.family("barnabas_remote_reads_waiting").add(self._chunks.waiting)
        now_ms = int(self._clock.monotonic() * 1000)
        for what, quota in self._quotas:
            name = f"kafka_server_remotelogmanager_remote_{what}_throttle_time"
            page.family(f"{name}_avg").add(quota.times.average_ms(now_ms))
            page.family(f"{name}_max").add(quota.times.max_ms(now_ms))
        yield
        for topic, numbers in list(self._traffic.topics.items())[:TOPICS_MAX]:
            _add_counters(page, numbers, _label(topic))
        yield
        gauges: dict[str, list[int]] = {}
        for count, leader in enumerate(self._leaders.leaders(), 1):
            sums = gauges.setdefault(leader.partition.topic, [0] * len(_GAUGES))
            copy, delete = leader.lag, leader.delete_lag
            values = (
                copy.size_bytes, copy.segments, delete.size_bytes, delete.segments, leader.size_bytes, leader.segments,
            )  # fmt: skip
            for place, value in enumerate(values):
                sums[place] += value
            if count % PARTITIONS_AT_ONCE == 0:
                yield
        total = [sum(column) for column in zip(*gauges.values(), strict=True)] or [0] * len(_GAUGES)
        by_topic = [(_label(topic), sums) for topic, sums in gauges.items()]
        for labels, shown in [("", total), *by_topic[:TOPICS_MAX]]:
            for name, value in zip(_GAUGES, shown, strict=True):
                page.family(_PREFIX + name).add(value, labels)
        yield


def _add_counters(page: Exposition, numbers: RemoteTopicTraffic, labels: str) -> None:
    for name, field in _COUNTERS:
        page.family(_PREFIX + name).add(getattr(numbers, field), labels)


def _label(topic: str) -> str:
    return f'{{topic="{escape_label(topic)}"}}'
