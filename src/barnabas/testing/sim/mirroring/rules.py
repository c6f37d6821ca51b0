"""Machine: the rules that must hold at every moment while links run between two clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.core.ids import CONSUMER_OFFSETS_TOPIC
from barnabas.protocol.records.batch import iter_batches
from barnabas.server.links.fetching.states import MirrorState
from barnabas.testing.sim.cluster.observation import Key, Replica
from barnabas.testing.sim.cluster.rule import Row, batches_of
from barnabas.testing.sim.cluster.view import coordinators_of, mirror_states_of, stored_mirror_of
from barnabas.testing.sim.errors import CorrectnessError

if TYPE_CHECKING:
    from barnabas.core.ids import TopicPartition
    from barnabas.server.coordination.group.shard import GroupShard
    from barnabas.server.links.fetching.task import MirrorTask
    from barnabas.testing.sim.mirroring.observation import ObservedBatches, SiteObservation
    from barnabas.testing.sim.mirroring.site import Site
    from barnabas.testing.sim.node import SimNode

BY_LINK: Final = "barnabas-link"
"""The metadata of offsets that a link has committed."""
_ENDING: Final = frozenset({MirrorState.STOPPING, MirrorState.STOPPED})


class LinkRule:
    """A rule for one site, whose link mirrors topics of the other. Raises CorrectnessError when it is violated."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        self.site = site
        self.histories = histories
        """The batches of both sites, by the name of the site."""

    def observe(self, seen: SiteObservation) -> None:
        """Called many times a second, and before each kill."""

    def at_rest(self, seen: SiteObservation, source: SiteObservation, keys: Sequence[Key]) -> None:
        """Called when these mirrors have everything that the source has, and nobody writes to them."""

    def broken(self, what: str) -> NoReturn:
        text = f"{type(self).__name__} is broken in the {self.site.name}: {what}"
        self.site.world.trace.event("rule", text)
        raise CorrectnessError(f"{text}\n({(type(self).__doc__ or '').strip()})")


class MirrorIsPrefixOfSource(LinkRule):
    """Each batch of a mirror is a batch of the source: the same offsets, leader epoch and checksum. When the mirror has
    caught up, both logs have the same batches."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self._checked: dict[tuple[str, Key, int], int] = {}

    def observe(self, seen: SiteObservation) -> None:
        rows = self.histories[self.site.other.name].rows
        for key, task in seen.tasks.items():
            current, replica = stored_mirror_of(task), seen.leaders[key]
            if current is None or not current.is_aligned or current.truncate_to >= 0:
                continue
            if task.report().source_high_watermark < 0 or current.state is MirrorState.FAILED:
                continue  # whether the logs have diverged is known with the first response
            place = (replica.process_name, key, task.leader_epoch)
            end = replica.log.log_end_offset
            if current.state in _ENDING:
                end = min(end, current.position.offset)
            begin = max(self._checked.get(place, 0), replica.log.log_start_offset)
            of_source = rows.get(key, set())
            for row in batches_of(replica.log, begin, end):
                if row not in of_source:
                    self.broken(f"{seen.names[key]} on {replica.node.name} has {row}, which the source never had")
            self._checked[place] = end

    def at_rest(self, seen: SiteObservation, source: SiteObservation, keys: Sequence[Key]) -> None:
        for key in keys:
            here, there = seen.leaders[key], source.leaders[key]
            start = max(here.log.log_start_offset, there.log.log_start_offset)
            ours, theirs = all_batches(here, start), all_batches(there, start)
            if ours != theirs:
                differs = next((pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]), "the length")
                self.broken(f"{seen.names[key]}: {len(ours)} batches, {len(theirs)} on the source; {differs}")


class EpochIsAhead(LinkRule):
    """The leader epoch of a mirror partition is at least that of every batch in its log."""

    def observe(self, seen: SiteObservation) -> None:
        for key, task in seen.tasks.items():
            replica = seen.leaders[key]
            newest = replica.log.latest_epoch
            if newest is not None and newest > task.leader_epoch:
                self.broken(f"{seen.names[key]} has a batch of epoch {newest} and is led in {task.leader_epoch}")


class NoEcho(LinkRule):
    """A topic is a mirror in at most one of the two clusters."""

    def observe(self, seen: SiteObservation) -> None:
        for topic, mode in seen.modes.items():
            if mode is not None and self.site.other.mode(topic) is not None:
                self.broken(f"{topic} is a mirror of its own mirror")


class GroupOffsetsAreInTheLog(LinkRule):
    """An offset that a link has committed for a group is not beyond the end of the mirror; and when the mirror has
    caught up, it is not below its start either."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self._ends: dict[TopicPartition, int] = {}

    def observe(self, seen: SiteObservation) -> None:
        for replica in seen.replicas:
            name = replica.partition.name
            self._ends[name] = max(self._ends.get(name, 0), replica.log.log_end_offset)
        for group, name, offset in committed_by_link(self.site, seen):
            if offset > self._ends.get(name, 0):
                self.broken(f"group {group} has offset {offset} of {name}, whose log has never had it")

    def at_rest(self, seen: SiteObservation, source: SiteObservation, keys: Sequence[Key]) -> None:
        mirrors = {seen.names[key]: seen.leaders[key] for key in keys}
        starts = {name: replica.log.log_start_offset for name, replica in mirrors.items()}
        ends = {name: replica.partition.high_watermark for name, replica in mirrors.items()}
        with_members = {
            group.group_id
            for _, shard, _ in _group_shards(self.site)
            for group in shard.table.committed_groups()
            if not group.is_empty
        }
        for group, name, offset in committed_by_link(self.site, seen):
            if group not in with_members and name in starts and not starts[name] <= offset <= ends[name]:
                self.broken(f"group {group} has offset {offset} of {name} from {starts[name]} to {ends[name]}")


class GroupsWithMembersStay(LinkRule):
    """A link does not change the offsets of a group that has members."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self._before: dict[tuple[str, str], int] = {}
        """The end of the coordinator's log at the last observation, for each group that had members then."""

    def observe(self, seen: SiteObservation) -> None:
        now: dict[tuple[str, str], int] = {}
        for node, shard, end in _group_shards(self.site):
            for group in shard.table.committed_groups():
                if group.is_empty:
                    continue
                place = (f"{node.process.name}", group.group_id)  # type: ignore[union-attr]  # a node in the list runs
                now[place] = end
                before = self._before.get(place)
                for (topic, index), stored in shard.store.view(group.group_id, committed=True).items():
                    if before is not None and stored.log_offset >= before and stored.metadata == BY_LINK:
                        self.broken(f"group {group.group_id} has members, and was moved to {stored} of {topic}-{index}")
        self._before = now


class CutOverLeavesNothingOpen(LinkRule):
    """A topic that takes writes again has no open transaction of the source."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self.positions: dict[Key, int] = {}
        """The end of what was mirrored, for each partition that was stopped."""

    def observe(self, seen: SiteObservation) -> None:
        for node in self.site.cluster.brokers:
            for mirror, stored in mirror_states_of(node):
                if stored.state == MirrorState.STOPPED:
                    self.positions[mirror.topic_id.int, mirror.partition] = stored.position_offset
        for key, replica in seen.leaders.items():
            position = self.positions.get(key)
            if position is None or seen.modes.get(seen.names[key].topic) is not None or replica.partition.is_mirror:
                continue
            for entry in replica.log.producers.open_transactions:
                if entry.txn_first_offset < position:
                    self.broken(
                        f"{seen.names[key]}, mirrored up to {position}, has a transaction of producer "
                        f"{entry.producer_id} that is open from offset {entry.txn_first_offset} on"
                    )


class NoSilentGap(LinkRule):
    """A mirror begins no later than its source. If retention on the source overtakes a mirror, the offsets that the
    mirror never had are counted."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self._skipped: dict[int, tuple[MirrorTask, int]] = {}
        self._first: dict[Key, int] = {}
        """Where the log began when the topic became a mirror."""
        self.gaps: list[tuple[TopicPartition, int]] = []
        """For each time that retention has overtaken a mirror, about how many offsets it never had."""

    def observe(self, seen: SiteObservation) -> None:
        starts = self.histories[self.site.other.name].starts
        for key, task in seen.tasks.items():
            log, name = seen.leaders[key].log, seen.names[key]
            start = log.log_start_offset
            if start > max(self._first.setdefault(key, start), starts.get(key, 0)):
                self.broken(f"{name} begins at {start}, and its source has never begun after {starts.get(key, 0)}")
            self._skipped[id(task)] = (task, task.report().skipped_records)

    def skipped(self, tp: TopicPartition) -> int:
        """How many offsets of a partition the leaders have counted."""
        return sum(count for task, count in self._skipped.values() if task.key == (tp.topic, tp.partition))

    def at_rest(self, seen: SiteObservation, source: SiteObservation, keys: Sequence[Key]) -> None:
        for tp, missing in self.gaps:
            if not self.skipped(tp):
                self.broken(f"{tp} lacks {missing} offsets that the source had, and its leaders count none")


class TailIsSaved(LinkRule):
    """A committed record that a mirror cuts off is in a file: the source has lost it, or never had it."""

    def __init__(self, site: Site, histories: Mapping[str, ObservedBatches]) -> None:
        super().__init__(site, histories)
        self._kept: dict[Key, set[Row]] = {}
        self._scanned: dict[tuple[str, Key, int], int] = {}
        self.saved = 0
        """The batches that are in files only."""

    def observe(self, seen: SiteObservation) -> None:
        for key, task in seen.tasks.items():
            self._keep(key, seen.leaders[key], task.leader_epoch)

    def keep_all(self, seen: SiteObservation) -> None:
        """The topics become mirrors now: nothing that is committed may be lost."""
        for key, replica in seen.leaders.items():
            self._keep(key, replica, -1)

    def _keep(self, key: Key, replica: Replica, epoch: int) -> None:
        place = (replica.process_name, key, epoch)
        begin = max(self._scanned.get(place, 0), replica.log.log_start_offset)
        end = replica.partition.high_watermark
        self._kept.setdefault(key, set()).update(batches_of(replica.log, begin, end))
        self._scanned[place] = max(begin, end)

    def at_rest(self, seen: SiteObservation, source: SiteObservation, keys: Sequence[Key]) -> None:
        for key in keys:
            replica, name = seen.leaders[key], seen.names[key]
            start = replica.log.log_start_offset
            present = set(all_batches(replica, start))
            missing = {row for row in self._kept.get(key, ()) if row not in present and row.base_offset >= start}
            saved = set(_saved(self.site, name)) if missing else set()
            if not missing <= saved:
                self.broken(f"{name} has lost {min(missing - saved)}, and no file has it")
            self.saved += len(missing)


RULES: Final[tuple[type[LinkRule], ...]] = (
    MirrorIsPrefixOfSource,
    EpochIsAhead,
    NoEcho,
    GroupOffsetsAreInTheLog,
    GroupsWithMembersStay,
    CutOverLeavesNothingOpen,
    NoSilentGap,
    TailIsSaved,
)


# -- what the rules read -----------------------------------------------------------------------------------------------


def all_batches(replica: Replica, start: int) -> list[Row]:
    """The batches of a replica from `start` up to its high watermark."""
    return list(batches_of(replica.log, start, replica.partition.high_watermark))


def _group_shards(site: Site) -> Iterator[tuple[SimNode, GroupShard, int]]:
    """The node, the state and the end of the committed log of each coordinator of groups that is loaded."""
    for node in site.cluster.brokers:
        for host in coordinators_of(node):
            if host.tp.topic == CONSUMER_OFFSETS_TOPIC and host.caught_up:
                yield node, host.shard, host.committed_offset


def committed_by_link(site: Site, seen: SiteObservation) -> Iterator[tuple[str, TopicPartition, int]]:
    """The group, the partition and the offset of each offset of a mirror that a link has committed."""
    names = {name for name in seen.names.values() if seen.modes.get(name.topic) is not None}
    for _, shard, _ in _group_shards(site):
        for group in shard.table.committed_groups():
            stored = shard.store.view(group.group_id, committed=True)
            for name in sorted(names):
                found = stored.get((name.topic, name.partition))
                if found is not None and found.metadata == BY_LINK:
                    yield group.group_id, name, found.offset


def _saved(site: Site, name: TopicPartition) -> Iterator[Row]:
    """The batches in the files of tails of a partition, on the disks of all hosts."""
    for node in site.cluster.brokers:
        for path in node.disk.paths():
            if f".mirror-tail-{name.topic}-{name.partition}-" in path and path.endswith(".log"):
                for _, header in iter_batches(bytes(node.disk.data(path))):
                    yield Row(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
