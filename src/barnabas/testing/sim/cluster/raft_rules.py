"""Machine: what must hold in the metadata quorum: the rules of Kafka's RaftEventSimulationTest and of KRaft's
specification that can be seen from outside, held against the running nodes. (All of them, against the machines alone,
are in `tests/property/raft_invariants.py`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.rule import Row, Rule, batches_of
from barnabas.testing.sim.cluster.view import image_of, metadata_log_of, raft_of, told_epoch_of

if TYPE_CHECKING:
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.sight import Sight
    from barnabas.testing.sim.node import SimNode


class MonotonicEpoch(Rule):
    """A voter never goes back to an earlier epoch, not even over a crash: its vote is on the disk before it counts."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._seen: dict[str, int] = {}

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        before = self._seen.get(node.name, 0)
        if machine.is_leader and machine.epoch < before:
            self.broken(f"{node.name} leads epoch {machine.epoch} and was in {before} before")
        if node in self.cluster.controllers:
            self._seen[node.name] = max(before, told_epoch_of(node))


class SingleLeader(Rule):
    """NeverTwoLeadersInSameEpoch: whether at the same time, one after the other, or the same one born again."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._leaders: dict[int, str] = {}

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        if machine.is_leader and told_epoch_of(node) >= machine.epoch:
            assert node.process is not None
            me = node.process.name
            other = self._leaders.setdefault(machine.epoch, me)
            if other != me:
                self.broken(f"{other} and {me} both led epoch {machine.epoch}")


class MonotonicQuorumWatermark(Rule):
    """What a replica once called committed in the metadata log, it never doubts. (One that starts over, because its
    disk was full, is another one.)"""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._seen: dict[str, tuple[RaftMachine, int]] = {}

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        mark = machine.high_watermark
        before = self._seen.get(node.name)
        if before is not None and before[0] is machine and mark < before[1]:
            self.broken(f"{node.name}: high watermark from {before[1]} to {mark}")
        self._seen[node.name] = machine, mark


class ConsistentMetadata(Rule):
    """Committed metadata is the same everywhere, for ever: no log differs below its high watermark."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._committed: dict[int, Row] = {}
        self._checked: dict[str, int] = {}

    def look(self, seen: Sight) -> None:
        for node in self.cluster.hosts.values():
            machine, log = raft_of(node), metadata_log_of(node)
            if machine is None or log is None or node.process is None:
                continue
            name = node.process.name
            start = max(self._checked.get(name, 0), log.log_start_offset)
            if start >= machine.high_watermark:
                continue
            for row in batches_of(log, start, machine.high_watermark):
                known = self._committed.setdefault(row.base_offset, row)
                if known != row:
                    self.broken(f"{name} has {row} committed, others {known}")
                start = row.next_offset
            self._checked[name] = start


class OneTruth(Rule):
    """Two nodes whose images end at the same record have the same image, wherever they began: log or snapshot."""

    def at_rest(self) -> None:
        first: tuple[str, int, object] | None = None
        for node in self.cluster.hosts.values():
            image = image_of(node)
            if image is None:
                continue
            facts = {
                "topics": sorted(((t.name, t.topic_id, t.partitions) for t in image.topics), key=lambda row: row[0]),
                "brokers": sorted((b.broker_id, b.epoch, b.fenced, b.rack) for b in image.brokers.brokers.values()),
                "features": sorted(image.features.levels.items()),
                "configs": _sorted_configs(image),
                "producer ids": image.producer_ids,
            }
            if first is None:
                first = node.name, image.offset, facts
            elif image.offset == first[1] and facts != first[2]:
                assert isinstance(first[2], dict)
                what = [name for name, fact in facts.items() if fact != first[2][name]]
                self.broken(f"{first[0]} and {node.name} have other {what} at offset {image.offset}")


def _sorted_configs(image: ClusterImage) -> list[tuple[tuple[int, str], list[tuple[str, str]]]]:
    return sorted(
        ((int(resource.type), resource.name), sorted(values.items()))
        for resource, values in image.configs.by_resource.items()
    )


RAFT_RULES: tuple[type[Rule], ...] = (
    MonotonicEpoch,
    SingleLeader,
    MonotonicQuorumWatermark,
    ConsistentMetadata,
    OneTruth,
)
