"""Shell: the metrics of the quorum of controllers, as this node sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.server.quorum.metadata_log import RaftMetadataLog

if TYPE_CHECKING:
    from barnabas.server.quorum.zookeeper.metadata_log import ZooKeeperMetadataLog

_RAFT: Final = "kafka_server_raftmetrics_"


class QuorumMonitor:
    """Reads the metadata log. `without_leader_s` is for how long no leader has been known; `applied_offset` the offset
    of the newest metadata record in this node's image."""

    def __init__(
        self,
        metadata: RaftMetadataLog | ZooKeeperMetadataLog,
        without_leader_s: Callable[[], float],
        applied_offset: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._without_leader_s = without_leader_s
        self._applied_offset = applied_offset

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        metadata = self._metadata
        page.family("barnabas_quorum_known").add(int(metadata.responsive_leader_id >= 0))
        page.family("barnabas_quorum_without_controller_seconds").add(round(self._without_leader_s(), 3))
        if not isinstance(metadata, RaftMetadataLog) or not metadata.is_open:
            yield
            return
        for name, value in (
            ("current_leader", metadata.leader_id),
            ("current_epoch", metadata.leader_epoch),
            ("high_watermark", metadata.high_watermark),
            ("log_end_offset", metadata.log_end_offset),
            ("number_of_voters", len(metadata.voter_set.ids)),
        ):
            page.family(_RAFT + name).add(value)
        page.family(_RAFT + "current_state").add(1, label_text(current_state=metadata.state_name))
        page.family("barnabas_metadata_lag").add(max(metadata.high_watermark - 1 - self._applied_offset(), 0))
        view = metadata.describe()
        if view is not None:
            lag, end = page.family("barnabas_quorum_replica_lag"), metadata.log_end_offset
            for role, replicas in (("voter", view.voters), ("observer", view.observers)):
                for replica in replicas:
                    if replica.log_end_offset >= 0:  # else it has not fetched from this leader, and its lag is unknown
                        behind = max(end - replica.log_end_offset, 0)
                        lag.add(behind, label_text(node_id=str(replica.key.id), role=role))
        yield
