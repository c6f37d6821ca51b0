"""Machine: the rules for the metadata quorum: those of Kafka's RaftEventSimulationTest and of KRaft's specification
that can be observed on running nodes. `tests/property/raft_invariants.py` checks all of these rules on the Raft
machines alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.testing.sim.cluster.rule import Row, Rule, batches_of
from barnabas.testing.sim.cluster.view import decision_images_of, durable_epoch_of, image_of, metadata_log_of, raft_of

if TYPE_CHECKING:
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.raft.machine.raft import RaftMachine
    from barnabas.testing.sim.cluster.cluster import SimCluster
    from barnabas.testing.sim.cluster.observation import ClusterObservation
    from barnabas.testing.sim.node import SimNode


class MonotonicEpoch(Rule):
    """The epoch of a voter never decreases, not even after a crash, because a vote is durable before it is sent."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._seen: dict[str, int] = {}

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        before = self._seen.get(node.name, 0)
        if machine.is_leader and machine.epoch < before:
            self.broken(f"{node.name} leads epoch {machine.epoch} and was in {before} before")
        if node in self.cluster.controllers:
            self._seen[node.name] = max(before, durable_epoch_of(node))


class SingleLeader(Rule):
    """NeverTwoLeadersInSameEpoch: an epoch has one leader. Neither another node nor a restarted process of the same
    node leads in that epoch again."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._leaders: dict[int, str] = {}

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        if machine.is_leader and durable_epoch_of(node) >= machine.epoch:
            assert node.process is not None
            me = node.process.name
            other = self._leaders.setdefault(machine.epoch, me)
            if other != me:
                self.broken(f"{other} and {me} both led epoch {machine.epoch}")


class MonotonicQuorumWatermark(Rule):
    """The high watermark of a replica of the metadata log never decreases. A replica that was started again inside
    the process, after a full disk, counts as another replica."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._seen: dict[str, tuple[RaftMachine, int]] = {}

    def step(self, node: SimNode, machine: RaftMachine) -> None:
        mark = machine.high_watermark
        before = self._seen.get(node.name)
        if before is not None and before[0] is machine and mark < before[1]:
            self.broken(f"{node.name}: high watermark from {before[1]} to {mark}")
        self._seen[node.name] = machine, mark


class LeaderHearsAMajority(Rule):
    """A controller that runs leads only as long as a majority of the voters fetches from it. Otherwise another one may
    be elected, and this one would keep requests that it cannot commit (check quorum)."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._since_ms: dict[tuple[str, int], int] = {}
        """For each process and epoch in which the process leads: the time since which it has run."""

    def observe(self, seen: ClusterObservation) -> None:
        now_ms = int(self.cluster.world.loop.time() * 1000)
        since_ms: dict[tuple[str, int], int] = {}
        for node in self.cluster.controllers:
            machine = raft_of(node)
            leader = None if machine is None else machine.quorum.leader
            if machine is None or leader is None or node.process is None:
                continue
            key = node.process.name, machine.epoch
            since_ms[key] = now_ms if node.paused else self._since_ms.get(key, now_ms)
            mine, voters = machine.quorum.me.id, leader.progress.voters
            fetches = sorted((known.last_fetch_ms for other, known in voters.items() if other != mine), reverse=True)
            needed = len(voters) // 2 + 1 - (mine in voters)
            # A leader resigns after one and a half of these time-outs. If several voters are needed, each of their
            # fetches counts once in that time.
            limit_ms = (2 if needed == 1 else 4) * int(node.config["controller.quorum.fetch.timeout.ms"])
            if needed and now_ms - max(fetches[needed - 1], since_ms[key]) > limit_ms:
                self.broken(
                    f"{node.name} leads epoch {machine.epoch}, and the last fetch of a majority was "
                    f"{now_ms - fetches[needed - 1]} ms ago"
                )
        self._since_ms = since_ms


class ConsistentMetadata(Rule):
    """No two metadata logs differ below their high watermarks."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(cluster)
        self._committed: dict[int, Row] = {}
        self._checked: dict[str, int] = {}

    def observe(self, seen: ClusterObservation) -> None:
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


class ControllerContinuesFromCommitted(Rule):
    """A controller without unsettled proposals decides on the committed image. Proposals that have failed, for example
    because another controller was elected, leave nothing in it."""

    def observe(self, seen: ClusterObservation) -> None:
        for node in self.cluster.controllers:
            found = decision_images_of(node)
            if found is None or found[0] is found[1]:
                continue
            image, committed = map(_facts, found)
            if image != committed:
                what = [name for name, fact in image.items() if fact != committed[name]]
                self.broken(f"{node.name} would decide on other {what} than those committed at {found[1].offset}")


class OneTruth(Rule):
    """Two nodes whose images end at the same offset have equal images, whether they loaded the log or a snapshot."""

    def at_rest(self) -> None:
        first: tuple[str, int, dict[str, object]] | None = None
        for node in self.cluster.hosts.values():
            image = image_of(node)
            if image is None:
                continue
            facts = _facts(image)
            if first is None:
                first = node.name, image.offset, facts
            elif image.offset == first[1] and facts != first[2]:
                what = [name for name, fact in facts.items() if fact != first[2][name]]
                self.broken(f"{first[0]} and {node.name} have other {what} at offset {image.offset}")


def _facts(image: ClusterImage) -> dict[str, object]:
    """The contents of an image, without the offset at which it ends."""
    return {
        "topics": sorted(((t.name, t.topic_id, t.partitions) for t in image.topics), key=lambda row: row[0]),
        "brokers": sorted((b.broker_id, b.epoch, b.fenced, b.rack) for b in image.brokers.brokers.values()),
        "features": sorted(image.features.levels.items()),
        "configs": _sorted_configs(image),
        "producer ids": image.producer_ids,
    }


def _sorted_configs(image: ClusterImage) -> list[tuple[tuple[int, str], list[tuple[str, str]]]]:
    return sorted(
        ((int(resource.type), resource.name), sorted(values.items()))
        for resource, values in image.configs.by_resource.items()
    )


RAFT_RULES: tuple[type[Rule], ...] = (
    MonotonicEpoch,
    SingleLeader,
    MonotonicQuorumWatermark,
    LeaderHearsAMajority,
    ConsistentMetadata,
    ControllerContinuesFromCommitted,
    OneTruth,
)
