"""Planted bugs of cluster links. Each one makes the production code wrong in one place, in a way that a programmer
might."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.server.coordination.group import groups
from barnabas.server.links.changes import NAME, STATE
from barnabas.server.links.fetching import leader, machine
from barnabas.server.links.fetching.fetched import plan_append
from barnabas.server.links.fetching.task import MirrorTask
from barnabas.server.links.group_offsets import GroupOffsets
from barnabas.server.links.leaders import MirrorMetadata
from barnabas.server.links.rounds import LinkRounds
from barnabas.server.links.source import LinkSource
from barnabas.server.replication.ports import LogBounds
from barnabas.server.replication.roles.leader import LeaderRole
from barnabas.testing.sim import CorrectnessError, CrashError, LivenessError
from barnabas.testing.sim.mirroring.faults import LinkFaultMenu

Patch = pytest.MonkeyPatch
WRONG = (CorrectnessError,)
ANY = (CorrectnessError, LivenessError, CrashError)
_LINKS = "barnabas.server.links.fetching"


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug, the menu of faults that makes it visible, and the kinds of failure that it may cause."""

    name: str
    plant: Callable[[Patch], None]
    menu: LinkFaultMenu
    seeds: int
    """The number of seeds within which the bug must be found."""
    caught_by: tuple[type[Exception], ...] = WRONG
    first: int = 0
    """The first seed to run."""
    shares: bool = False
    """Whether a share group must work for the bug to show."""


# -- the cut-over ------------------------------------------------------------------------------------------------------


def _ids_clash(patch: Patch) -> None:
    """The allocator of producer ids is not raised above the mirrored ones: a new producer continues a mirrored one."""

    async def raise_producer_ids(self: MirrorMetadata, above: int) -> None:
        pass

    patch.setattr(MirrorMetadata, "raise_producer_ids", raise_producer_ids)


def _transactions_left_open(patch: Patch) -> None:
    """Transactions whose markers were not mirrored stay open."""
    patch.setattr(leader, "abort_open_transactions", lambda partition, now_ms: 0)


def _mirrors_take_writes(patch: Patch) -> None:
    """The leader of a mirror appends what producers send."""
    patch.setattr(LeaderRole, "_check_writable", lambda self: None)


# -- what is mirrored --------------------------------------------------------------------------------------------------


def _epoch_behind(patch: Patch) -> None:
    """Batches are appended whatever their leader epoch is, and the local epoch is not raised."""
    real = machine.on_source_found

    def on_source_found(mirror: Any, leader_epoch: int, *rest: Any) -> Any:
        return real(mirror, -1, *rest)

    patch.setattr(machine, "on_source_found", on_source_found)
    patch.setattr(
        f"{_LINKS}.task.plan_append", lambda records, start, end, epoch: plan_append(records, start, end, 1 << 30)
    )


def _gap_not_counted(patch: Patch) -> None:
    """A mirror that retention has overtaken goes on at the source's log start, and nobody learns of it."""

    def skip_to(self: MirrorTask, offset: int) -> None:
        leader.restart_at(self._partition, offset, self._ports.clock.now_ms())

    patch.setattr(MirrorTask, "_skip_to", skip_to)


def _continues_at_the_end(patch: Patch) -> None:
    """A mirror that begins, or was overtaken by retention, goes on at the source's end, as a consumer does with
    auto.offset.reset=latest."""
    real = LinkSource.bounds

    async def bounds(self: LinkSource, *args: Any) -> LogBounds:
        found = await real(self, *args)
        return LogBounds(found.error, found.log_end_offset if found.log_start_offset else 0, found.log_end_offset)

    patch.setattr(LinkSource, "bounds", bounds)


def _recreation_ignored(patch: Patch) -> None:
    """A mirror goes on with another topic of the same name."""
    real = machine.on_source_found

    def on_source_found(mirror: Any, leader_epoch: int, topic_id: Any, *rest: Any) -> Any:
        return real(mirror, leader_epoch, None, *rest)

    patch.setattr(machine, "on_source_found", on_source_found)


def _echo(patch: Patch) -> None:
    """A link makes mirrors of topics that exist here, also of those that its source mirrors from here."""
    real = LinkRounds._follow_topics

    async def follow_topics(self: LinkRounds, source: Any, metadata: Any) -> list[str]:
        troubles = await real(self, source, metadata)
        for topic in self._mirrors.topics():
            if topic.name in metadata.topics and topic.link is None and not topic.name.startswith("__"):
                await self._mirrors.configure(topic.name, {NAME: self.link.name, STATE: "active"})
        return troubles

    patch.setattr(LinkRounds, "_follow_topics", follow_topics)


# -- truncations -------------------------------------------------------------------------------------------------------


def _tail_not_saved(patch: Patch) -> None:
    """Records are cut off before they are in a file."""

    async def save_tail(*args: Any) -> str:
        return ""

    patch.setattr(f"{_LINKS}.task.save_tail", save_tail)


def _start_of_the_epoch_stays(patch: Patch) -> None:
    """A leader that has cut its log off waits for the log to be as long as it was when the leader was elected."""
    patch.setattr(leader, "on_truncated", lambda state, log_end_offset: state)


def _empty_epochs_kept(patch: Patch) -> None:
    """A failback fetches with a leader epoch in which nothing was written, and which the new source does not know."""
    patch.setattr(leader, "forget_empty_epochs", lambda partition, now_ms: None)


def _offsets_alone_align(patch: Patch) -> None:
    """A failback cuts off what lies beyond the mirrored offset, whatever an unclean election has replaced below."""
    patch.setattr(machine, "divergence_point", lambda mirrored, log: mirrored.end_offset)


# -- group offsets -----------------------------------------------------------------------------------------------------


def _offsets_beyond_the_end(patch: Patch) -> None:
    """The offsets of groups are copied, also those of records that are not mirrored yet."""

    def plan_offsets(source: Mapping[Any, int], bounds: Mapping[Any, Any], local: Mapping[Any, int]) -> dict[Any, int]:
        return {key: offset for key, offset in source.items() if key in bounds and local.get(key) != offset}

    patch.setattr("barnabas.server.links.group_offsets.plan_offsets", plan_offsets)


def _members_ignored(patch: Patch) -> None:
    """A commit without a member is accepted, although the group has members."""
    real = groups.check_offset_commit

    def check_offset_commit(group: Any, member_id: str, *rest: Any, **named: Any) -> None:
        if member_id:
            real(group, member_id, *rest, **named)

    patch.setattr(groups, "check_offset_commit", check_offset_commit)


def _share_groups_forgotten(patch: Patch) -> None:
    """The offsets of share groups are not copied: after a cut-over the groups begin at one end of the log."""

    async def alter_share_group(self: GroupOffsets, group_id: str, commits: Mapping[Any, int]) -> None:
        pass

    patch.setattr(GroupOffsets, "_alter_share_group", alter_share_group)


PLANTED = [
    Planted("fresh producer ids equal mirrored ones", _ids_clash, LinkFaultMenu.KILL, 3),
    Planted("open transactions left at the cut-over", _transactions_left_open, LinkFaultMenu.KILL, 3, ANY),
    Planted("mirrors take writes", _mirrors_take_writes, LinkFaultMenu.KILL, 3),
    Planted("the local epoch is behind", _epoch_behind, LinkFaultMenu.KILL, 3),
    Planted("a gap after retention is not counted", _gap_not_counted, LinkFaultMenu.RETENTION, 3, first=1),
    Planted("an overtaken mirror goes on at the end", _continues_at_the_end, LinkFaultMenu.RETENTION, 3),
    Planted("a topic that was created again is mirrored on", _recreation_ignored, LinkFaultMenu.KILL, 3, ANY, first=1),
    Planted("mirrors are mirrored back", _echo, LinkFaultMenu.KILL, 3),
    Planted("tails not saved", _tail_not_saved, LinkFaultMenu.UNCLEAN, 3),
    Planted(
        "an epoch starts behind the truncated log", _start_of_the_epoch_stays, LinkFaultMenu.UNCLEAN, 3, ANY, first=1
    ),
    Planted("leader epochs without records kept", _empty_epochs_kept, LinkFaultMenu.KILL, 3, ANY, first=2),
    Planted("offsets alone align a failback", _offsets_alone_align, LinkFaultMenu.UNCLEAN, 3, first=112),
    Planted("group offsets beyond the end", _offsets_beyond_the_end, LinkFaultMenu.KILL, 3),
    Planted("groups with members are moved", _members_ignored, LinkFaultMenu.KILL, 3),
    Planted("share groups are forgotten", _share_groups_forgotten, LinkFaultMenu.KILL, 3, shares=True),
    Planted("share groups begin beyond the end", _offsets_beyond_the_end, LinkFaultMenu.POWER, 3, shares=True),
]
