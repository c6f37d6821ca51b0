"""Shell: the metrics of the whole cluster, which the active controller serves, and elections, which every node counts.

The numbers of partitions follow the changes in each image, so that neither an image nor a page of metrics has to visit
all partitions of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from barnabas.core.clock import Clock
from barnabas.core.telemetry import get_logger
from barnabas.core.telemetry.exposition import Exposition
from barnabas.server.metadata.image.cluster import ClusterImage, LeaderRecoveryState, PartitionImage, TopicsImage
from barnabas.server.metadata.image.delta import ClusterDelta

log = get_logger("barnabas.server.node")

_PREFIX: Final = "kafka_controller_kafkacontroller_"


class ClusterMonitor:
    """An image subscriber that counts partitions and elections. `is_active` says whether this node is the active
    controller. Elections in records that are older than this object are those of an earlier process."""

    def __init__(self, node_id: int, is_active: Callable[[], bool], clock: Clock) -> None:
        self.elections = 0
        self.unclean_elections = 0
        self.partitions = self.offline = self.imbalanced = self.reassigning = 0
        self._node_id = node_id
        self._is_active = is_active
        self._clock = clock
        self._started_ms = clock.now_ms()
        self._image = ClusterImage()

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Count the changes since the last image."""
        before: TopicsImage = self._image.topics
        is_new = image.provenance.timestamp_ms >= self._started_ms
        self._image = image
        gained = lost = elected = unclean = again = 0
        for topic_id in delta.topics.deleted:
            gone = before.get_by_id(topic_id)
            for old in () if gone is None else gone.partitions:
                self._add(old, -1)
                lost += old.leader == self._node_id
        for topic_id, change in delta.topics.changed.items():
            known = before.get_by_id(topic_id)
            for index, new in change.partition_changes.items():
                was = None if known is None else known.partition(index)
                self._add(new, 1)
                if was is not None:
                    self._add(was, -1)
                led = was is not None and was.leader == self._node_id
                gained += new.leader == self._node_id and not led
                lost += led and new.leader != self._node_id
                if new.has_leader and (was is None or was.leader_epoch != new.leader_epoch):
                    elected += was is not None
                    if _is_unclean(was, new):
                        unclean += 1
                        again += was is not None and new.leader in (was.leader, *was.last_known_elr)
        if is_new:
            self.elections += elected
            self.unclean_elections += unclean
            self._log(gained, lost, elected, unclean - again, again)

    def _log(self, gained: int, lost: int, elected: int, unclean: int, again: int) -> None:
        """`again` counts the partitions whose last leader leads again after it was stopped uncleanly (KIP-966)."""
        if gained or lost:
            log.info("leaderships of this broker changed", gained=gained, lost=lost)
        if elected and self._is_active():
            log.info("leaders were elected", partitions=elected, offline=self.offline)
        if unclean and self._is_active():
            log.warning(
                "leaders were elected that were not in sync: records that they lack are lost", partitions=unclean
            )
        if again and self._is_active():
            log.warning(
                "the last leaders lead again after an unclean stop, because no other replica was in sync: records are "
                "missing only if their hosts lost power before the records were on the disk",
                partitions=again,
            )

    def _add(self, partition: PartitionImage, sign: int) -> None:
        self.partitions += sign
        if partition.is_reassigning and partition.leader == self._node_id:
            self.reassigning += sign
        if not partition.has_leader:
            self.offline += sign
        elif partition.leader != partition.preferred_leader:
            self.imbalanced += sign

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        image, active = self._image, self._is_active()
        alive = sum(not broker.fenced for broker in image.brokers)
        for name, value in (
            ("offlinepartitionscount", self.offline),
            ("preferredreplicaimbalancecount", self.imbalanced),
            ("globaltopiccount", len(image.topics)),
            ("globalpartitioncount", self.partitions),
            ("activebrokercount", alive),
            ("fencedbrokercount", len(image.brokers) - alive),
        ):
            page.family(_PREFIX + name).add(value if active else 0)
        page.family("kafka_server_replicamanager_reassigningpartitions").add(self.reassigning)
        page.family(_PREFIX + "activecontrollercount").add(int(active))
        page.family(_PREFIX + "lastappliedrecordoffset").add(image.offset)
        applied_ms = image.provenance.timestamp_ms
        page.family(_PREFIX + "lastappliedrecordtimestamp").add(applied_ms)
        page.family(_PREFIX + "lastappliedrecordlagms").add(max(self._clock.now_ms() - applied_ms, 0))
        if active:  # kafka_exporter has one series for a cluster, too
            page.family("kafka_brokers").add(alive)
        stats = "kafka_controller_controllerstats_"
        page.family(stats + "uncleanleaderelections_total").add(self.unclean_elections)
        page.family(stats + "leaderelectionrateandtimems_count").add(self.elections)
        yield


def _is_unclean(was: PartitionImage | None, new: PartitionImage) -> bool:
    """Whether the new leader had neither been in sync nor eligible (KIP-966).

    After an unclean election a partition stays RECOVERING through clean elections, until its leader changes the ISR.
    """
    if new.leader_recovery_state != LeaderRecoveryState.RECOVERING:
        return False
    if was is None or was.leader_recovery_state != LeaderRecoveryState.RECOVERING:
        return True
    return new.leader not in was.isr and new.leader not in was.elr
