"""Shell: the metrics of the replicas of a broker, their logs and its log directories.

A broker may have 10,000 replicas with eight series each, so the loop over them writes lines directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from barnabas.core.telemetry.exposition import Exposition, Family, label_text
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.node.monitoring.limits import PARTITIONS_AT_ONCE, PARTITIONS_MAX, LeftOut
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.roles.follower import FollowerRole
from barnabas.server.replication.roles.leader import LeaderRole
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import FileSystem

_MANAGER: Final = "kafka_server_replicamanager_"
_PARTITION: Final = "kafka_cluster_partition_"
_LOG: Final = "kafka_log_log_"


class _Counts:
    """The sums of one page."""

    def __init__(self) -> None:
        self.seen = self.led = self.offline = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.reassigning = self.producers = self.lag_max = 0
        self.waiting: dict[str, int] = {"Produce": 0, "Fetch": 0, "DeleteRecords": 0}
        self.bytes_of: dict[str, int] = {}


class ReplicaMonitor:
    """Reads the partitions of one broker."""

    def __init__(
        self, partitions: Partitions, image: Callable[[], ClusterImage], fs: FileSystem, missing_dirs: list[str],
        left_out: LeftOut, broker_state: Callable[[], int],
    ) -> None:  # fmt: skip
        """`broker_state` returns Kafka's number of the state of this broker."""
        self._broker_state = broker_state
        self._partitions = partitions
        self._image = image
        self._fs = fs
        self._missing_dirs = missing_dirs
        self._left_out = left_out

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples of all replicas."""
        counts = _Counts()
        lines = _PartitionLines(page)
        topics = self._image().topics
        for partition in list(self._partitions):
            self._count(partition, counts)
            state = topics.partition(partition.name.topic, partition.name.partition)
            if state is not None and state.is_reassigning and partition.is_leader:
                counts.reassigning += 1
            if counts.seen <= PARTITIONS_MAX:
                lines.add(partition)
            if counts.seen % PARTITIONS_AT_ONCE == 0:
                yield
        self._left_out.set("partition", max(counts.seen - PARTITIONS_MAX, 0))
        yield
        self._add_sums(page, counts)
        self._add_directories(page, counts.bytes_of)
        yield

    def _count(self, partition: Partition, counts: _Counts) -> None:
        counts.seen += 1
        log, role = partition.log, partition.role
        if log is None:
            counts.offline += 1
            return
        home = self._partitions.log_dir_of(partition)
        if home is not None:
            counts.bytes_of[home.path] = counts.bytes_of.get(home.path, 0) + log.size_bytes
        counts.producers += len(log.producers)
        if isinstance(role, LeaderRole):
            counts.led += 1
            in_sync, replicas = len(role.state.isr), len(role.state.replicas)
            least = min(log.config.min_insync_replicas, replicas)
            counts.under_replicated += in_sync < replicas
            counts.under_min_isr += in_sync < least
            counts.at_min_isr += in_sync == least
            counts.waiting["Produce"] += len(partition.delayed_produces)
            counts.waiting["Fetch"] += len(partition.consumer_fetches) + len(partition.follower_fetches)
            counts.waiting["DeleteRecords"] += len(partition.delayed_deletes)
        elif isinstance(role, FollowerRole):
            counts.lag_max = max(counts.lag_max, role.lag)

    def _add_sums(self, page: Exposition, counts: _Counts) -> None:
        offline_dirs = [home for home in self._partitions.log_dirs if home.failure is not None]
        sums: Mapping[str, float] = {
            _MANAGER + "partitioncount": counts.seen,
            _MANAGER + "leadercount": counts.led,
            _MANAGER + "offlinereplicacount": counts.offline,
            _MANAGER + "underreplicatedpartitions": counts.under_replicated,
            _MANAGER + "underminisrpartitioncount": counts.under_min_isr,
            _MANAGER + "atminisrpartitioncount": counts.at_min_isr,
            _MANAGER + "reassigningpartitions": counts.reassigning,
            _MANAGER + "produceridcount": counts.producers,
            "kafka_server_kafkaserver_brokerstate": self._broker_state(),
            "kafka_log_logmanager_offlinelogdirectorycount": len(offline_dirs) + len(self._missing_dirs),
        }
        for name, value in sums.items():
            page.family(name).add(value)
        page.family("kafka_server_replicafetchermanager_maxlag").add(counts.lag_max, label_text(clientId="Replica"))
        purgatory = page.family("kafka_server_delayedoperationpurgatory_purgatorysize")
        for operation, count in counts.waiting.items():
            purgatory.add(count, label_text(delayedOperation=operation))

    def _add_directories(self, page: Exposition, bytes_of: Mapping[str, int]) -> None:
        offline = page.family("kafka_log_logmanager_logdirectoryoffline")
        for path in self._missing_dirs:
            offline.add(1, label_text(logDirectory=path))
        for home in self._partitions.log_dirs:
            offline.add(int(home.failure is not None), label_text(logDirectory=home.path))
            self._add_space(page, home, bytes_of)

    def _add_space(self, page: Exposition, home: LogDir, bytes_of: Mapping[str, int]) -> None:
        labels = label_text(path=home.path)
        page.family("barnabas_log_dir_bytes").add(bytes_of.get(home.path, 0), labels)
        try:
            usage = self._fs.disk_usage(home.path)
        except OSError:
            return  # the directory is gone; `LogDirectoryOffline` says so when the broker uses it
        page.family("barnabas_log_dir_free_bytes").add(usage.free, labels)
        page.family("barnabas_log_dir_total_bytes").add(usage.total, labels)


class _PartitionLines:
    """Writes the samples of single partitions."""

    def __init__(self, page: Exposition) -> None:
        self._size = page.family(_LOG + "size")
        self._segments = page.family(_LOG + "numlogsegments")
        self._start = page.family(_LOG + "logstartoffset")
        self._end = page.family(_LOG + "logendoffset")
        self._under_replicated = page.family(_PARTITION + "underreplicated")
        self._under_min_isr = page.family(_PARTITION + "underminisr")
        self._at_min_isr = page.family(_PARTITION + "atminisr")
        self._in_sync = page.family(_PARTITION + "insyncreplicascount")

    def add(self, partition: Partition) -> None:
        log, role = partition.log, partition.role
        if log is None:
            return
        name = partition.name
        labels = f'{{topic="{name.topic}",partition="{name.partition}"}}'
        _put(self._size, labels, log.size_bytes)
        _put(self._segments, labels, len(log.segments))
        _put(self._start, labels, log.log_start_offset)
        _put(self._end, labels, log.log_end_offset)
        if isinstance(role, LeaderRole):
            in_sync, replicas = len(role.state.isr), len(role.state.replicas)
            least = min(log.config.min_insync_replicas, replicas)
            _put(self._under_replicated, labels, int(in_sync < replicas))
            _put(self._under_min_isr, labels, int(in_sync < least))
            _put(self._at_min_isr, labels, int(in_sync == least))
            _put(self._in_sync, labels, in_sync)


def _put(family: Family, labels: str, value: int) -> None:
    family.lines.append(f"{family.name}{labels} {value}")
