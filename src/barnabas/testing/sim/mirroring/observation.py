"""Value: an observation of two clusters with links, and every batch that their replicas have had so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.observation import Key, Replica, replicas_of
from barnabas.testing.sim.cluster.rule import Row, batches_of
from barnabas.testing.sim.cluster.view import mirror_tasks_of

if TYPE_CHECKING:
    from barnabas.server.links.fetching.task import MirrorTask
    from barnabas.server.links.fetching.values import MirrorMode
    from barnabas.testing.sim.mirroring.site import Site


class SiteObservation:
    """One cluster at one moment. No simulated code runs while the rules use the observation."""

    __slots__ = ("leaders", "modes", "names", "replicas", "site", "tasks")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.replicas: list[Replica] = replicas_of(site.cluster)
        self.leaders: dict[Key, Replica] = {replica.key: replica for _, replica in site.leaders()}
        self.names = {replica.key: replica.partition.name for replica in self.replicas}
        self.modes: dict[str, MirrorMode | None] = {
            topic: site.mode(topic) for topic in sorted({name.topic for name in self.names.values()})
        }
        self.tasks: dict[Key, MirrorTask] = {}
        """The tasks of the mirror partitions, of those leaders that the newest image names."""
        for node in site.cluster.brokers:
            for task in mirror_tasks_of(node):
                key = (task.name.topic_id.int, task.name.partition)
                leader = self.leaders.get(key)
                if leader is not None and leader.node is node and leader.partition.leader_epoch == task.leader_epoch:
                    self.tasks[key] = task


class ObservedBatches:
    """Every batch that any replica of a cluster has had, also those that an unclean leader election lost."""

    def __init__(self) -> None:
        self.rows: dict[Key, set[Row]] = {}
        self.starts: dict[Key, int] = {}
        """The largest log start offset of each partition."""
        self._scanned: dict[tuple[str, Key, int], int] = {}

    def observe(self, seen: SiteObservation) -> None:
        for _, process, partition, log, key in seen.replicas:
            if partition.name.topic.startswith("__"):
                continue
            self.starts[key] = max(self.starts.get(key, 0), log.log_start_offset)
            scanned = self._scanned.get((process, key, partition.leader_epoch), 0)
            end = log.log_end_offset
            if end > scanned:
                begin = max(scanned, log.log_start_offset)
                self.rows.setdefault(key, set()).update(batches_of(log, begin, end))
            self._scanned[process, key, partition.leader_epoch] = end
