"""What a failover costs: records that were lost, and records that a group processes twice; tables about both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from examples.mirroring.clusters import console
from examples.mirroring.work import Acknowledged, Reader, Writer
from rich.table import Table

from barnabas.core.ids import TopicPartition


@dataclass(frozen=True)
class Loss:
    """What a cluster had acknowledged when it died, and what of it the other cluster has."""

    cluster: str
    acknowledged: int
    mirrored: int
    """Of the acknowledged records."""
    tail: Mapping[int, Sequence[str]]
    """The acknowledged records that are missing, by partition: the recovery point objective (RPO)."""
    is_tail: bool
    """Whether exactly the last records of each partition are missing, and none before them."""

    @property
    def lost(self) -> int:
        return sum(len(values) for values in self.tail.values())


def account(cluster: str, writer: Writer, copies: Mapping[int, Sequence[str]]) -> Loss:
    """Compare what a cluster has acknowledged with the values of its copy, partition by partition. The writer must have
    stopped, and must not have written into another cluster."""
    tail: dict[int, list[str]] = {}
    is_tail, mirrored = True, 0
    for partition, found in copies.items():
        given = _in_log(writer.acknowledged, partition)
        there = set(found)
        tail[partition] = [value for value in given if value not in there]
        kept = len(given) - len(tail[partition])
        mirrored += kept
        is_tail &= given[kept:] == tail[partition]
        in_order = [value for value in found if value not in writer.unknown]
        is_tail &= in_order == given[:kept]
    return Loss(cluster, len(writer.acknowledged), mirrored, tail, is_tail)


def _in_log(acknowledged: Sequence[Acknowledged], partition: int) -> list[str]:
    """The values of a partition in the order of the log."""
    return [one.value for one in sorted(acknowledged, key=lambda one: one.offset) if one.partition == partition]


@dataclass(frozen=True)
class Move:
    """A group that went on in another cluster."""

    group: str
    from_cluster: str
    to_cluster: str
    before: int
    """Records that were processed before the move."""
    again: int
    """Records that were processed before, and once more after the move."""
    missed: int
    """Records that were never processed, although the new cluster has them."""
    went_on_at: Mapping[TopicPartition, int]
    """The group's offsets in the new cluster at the move."""


def account_move(reader: Reader, from_cluster: str, there: Sequence[str]) -> Move:
    """What a group has processed twice or not at all since its last start; `there` is what it should have found."""
    done = reader.values()
    before, after = set(done[: reader.moved_at]), set(done[reader.moved_at :])
    missed = len(set(there) - before - after)
    again = len(before & after)
    return Move(reader.group, from_cluster, reader.cluster, len(before), again, missed, reader.went_on_at)


@dataclass
class Report:
    """What an example has found out, and whether all of it is as promised."""

    losses: list[Loss] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    checks: list[tuple[str, bool]] = field(default_factory=list)

    def check(self, text: str, holds: bool) -> None:
        """Note a promise and whether it was kept."""
        self.checks.append((text, holds))

    @property
    def is_good(self) -> bool:
        return all(holds for _, holds in self.checks) and all(move.missed == 0 for move in self.moves)

    def show(self) -> int:
        """Print everything; return the exit code."""
        losses = Table("cluster", "acknowledged", "mirrored", "lost (the RPO)", "only the tail", title="What was lost")
        for loss in self.losses:
            yes = "yes" if loss.is_tail else "NO"
            losses.add_row(loss.cluster, str(loss.acknowledged), str(loss.mirrored), str(loss.lost), yes)
        moves = Table("group", "processed", "again", "missed", "went on at")
        moves.title = "Where the groups went on"
        for move in self.moves:
            places = "\n".join(f"{tp} {offset}" for tp, offset in sorted(move.went_on_at.items()))
            counts = (str(move.before), str(move.again), str(move.missed))
            moves.add_row(f"{move.group} to {move.to_cluster}", *counts, places)
        for table in (losses, moves):
            if table.row_count:
                console.print(table)
        for text, holds in self.checks:
            mark = "[bold green]✓[/bold green]" if holds else "[bold red]✗[/bold red]"
            console.print(f"{mark} {text}", highlight=False)
        return 0 if self.is_good else 1


def once(values: Sequence[str]) -> bool:
    """Whether no value is there twice."""
    return all(count == 1 for count in Counter(values).values())
