"""Shell: the metrics of the replicas of a broker, their logs and its log directories.

A broker may have 10,000 replicas with eight series each, so the loop over them writes lines directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.server.monitoring.limits import PARTITIONS_AT_ONCE, PARTITIONS_MAX, LeftOut
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.partitions import Partitions
from barnabas.server.replication.roles.follower import FollowerRole
from barnabas.server.replication.roles.leader import LeaderRole
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import FileSystem

_MANAGER: Final = "kafka_server_replicamanager_"
_LOG_NAMES: Final = tuple(
    f"kafka_log_log_{name}" for name in ("size", "numlogsegments", "logstartoffset", "logendoffset")
)
_LEADER_NAMES: Final = tuple(
    f"kafka_cluster_partition_{name}" for name in ("underreplicated", "underminisr", "atminisr", "insyncreplicascount")
)

_AddFour = Callable[[str, int, int, int, int], None]
"""Adds the values of four families for some labels."""
_AddOffsets = Callable[[str, int, int], None]
_Lines = tuple[_AddFour, _AddFour, _AddOffsets, Callable[[str], None]]
"""For `_LOG_NAMES`, of every replica; for `_LEADER_NAMES` and for the offsets, of the leader's replica; and a line of
`_FOLLOWER_LAG`, of a follower's replica."""
_FOLLOWER_LAG: Final = "kafka_server_fetcherlagmetrics_consumerlag"


def _add_four(page: Exposition, names: tuple[str, ...]) -> _AddFour:
    """The function for four names. A loop over the families would take twice the time."""
    first, second, third, fourth = (page.family(name) for name in names)
    add_1, add_2, add_3, add_4 = (family.lines.append for family in (first, second, third, fourth))
    name_1, name_2, name_3, name_4 = (family.name for family in (first, second, third, fourth))

    def add(labels: str, value_1: int, value_2: int, value_3: int, value_4: int) -> None:
        add_1(f"{name_1}{labels} {value_1}")
        add_2(f"{name_2}{labels} {value_2}")
        add_3(f"{name_3}{labels} {value_3}")
        add_4(f"{name_4}{labels} {value_4}")

    return add


def _add_offsets(page: Exposition) -> _AddOffsets:
    """Adds the offsets of consumers, which have the names of kafka_exporter."""
    current, oldest = (page.family(f"kafka_topic_partition_{name}_offset") for name in ("current", "oldest"))
    add_current, add_oldest = current.lines.append, oldest.lines.append
    current_name, oldest_name = current.name, oldest.name

    def add(labels: str, high_watermark: int, log_start_offset: int) -> None:
        add_current(f"{current_name}{labels} {high_watermark}")
        add_oldest(f"{oldest_name}{labels} {log_start_offset}")

    return add


class _Sums:
    """The sums of one page."""

    def __init__(self) -> None:
        self.led = self.offline = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.producers = self.lag_max = 0
        self.bytes_of: dict[str, int] = {}


class ReplicaMonitor:
    """Reads the partitions of one broker."""

    def __init__(
        self, partitions: Partitions, fs: FileSystem, missing_dirs: list[str], left_out: LeftOut,
        broker_state: Callable[[], int],
    ) -> None:  # fmt: skip
        """`broker_state` returns Kafka's number of the state of this broker."""
        self._partitions = partitions
        self._fs = fs
        self._missing_dirs = missing_dirs
        self._left_out = left_out
        self._broker_state = broker_state

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples of all replicas."""
        partitions, sums = list(self._partitions), _Sums()
        follower_lags = page.family(_FOLLOWER_LAG).lines.append
        lines = _add_four(page, _LOG_NAMES), _add_four(page, _LEADER_NAMES), _add_offsets(page), follower_lags
        for start in range(0, len(partitions), PARTITIONS_AT_ONCE):
            some = partitions[start : start + PARTITIONS_AT_ONCE]
            self._read(some, sums, lines if start < PARTITIONS_MAX else None)
            yield
        self._left_out.set("partition", max(len(partitions) - PARTITIONS_MAX, 0))
        self._add_sums(page, len(partitions), sums)
        self._add_directories(page, sums.bytes_of)
        yield

    def _read(self, partitions: list[Partition], sums: _Sums, lines: _Lines | None) -> None:
        """Add partitions to the sums, and their own samples to the lines. A hot loop: 10,000 partitions take some
        50 ms."""
        home_of, bytes_of = self._partitions.log_dir_of, sums.bytes_of
        for partition in partitions:
            log, role = partition.log, partition.role
            if log is None:
                sums.offline += 1
                continue
            size, segments, start, end, producers = log.figures()
            home = home_of(partition)
            if home is not None:
                bytes_of[home.path] = bytes_of.get(home.path, 0) + size
            sums.producers += producers
            led: tuple[int, int, int, int] | None = None
            if isinstance(role, LeaderRole):
                state = role.state
                in_sync, replicas = len(state.isr), len(state.replicas)
                least = min(log.config.min_insync_replicas, replicas)
                led = (int(in_sync < replicas), int(in_sync < least), int(in_sync == least), in_sync)
                sums.led += 1
                sums.under_replicated += led[0]
                sums.under_min_isr += led[1]
                sums.at_min_isr += led[2]
            elif isinstance(role, FollowerRole):
                sums.lag_max = max(sums.lag_max, role.lag)
            if lines is None:
                continue
            add_log, add_leader, add_offsets, add_lag = lines
            name = partition.name
            labels = f'{{topic="{name.topic}",partition="{name.partition}"}}'
            add_log(labels, size, segments, start, end)
            if led is not None:
                add_leader(labels, *led)
                add_offsets(labels, partition.high_watermark, start)
            elif isinstance(role, FollowerRole):
                add_lag(f'{_FOLLOWER_LAG}{{clientId="Replica",{labels[1:]} {role.lag}')

    def _add_sums(self, page: Exposition, seen: int, sums: _Sums) -> None:
        offline_dirs = [home for home in self._partitions.log_dirs if home.failure is not None]
        values: Mapping[str, float] = {
            _MANAGER + "partitioncount": seen,
            _MANAGER + "leadercount": sums.led,
            _MANAGER + "offlinereplicacount": sums.offline,
            _MANAGER + "underreplicatedpartitions": sums.under_replicated,
            _MANAGER + "underminisrpartitioncount": sums.under_min_isr,
            _MANAGER + "atminisrpartitioncount": sums.at_min_isr,
            _MANAGER + "produceridcount": sums.producers,
            "kafka_server_kafkaserver_brokerstate": self._broker_state(),
            "kafka_log_logmanager_offlinelogdirectorycount": len(offline_dirs) + len(self._missing_dirs),
        }
        for name, value in values.items():
            page.family(name).add(value)
        page.family("kafka_server_replicafetchermanager_maxlag").add(sums.lag_max, label_text(clientId="Replica"))

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
