"""Machine: the rules that must hold at the end, for what clients read from the two clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.core.ids import TopicPartition
from barnabas.testing.sim.errors import CorrectnessError, LivenessError

if TYPE_CHECKING:
    from barnabas.testing.sim.mirroring.programs import SiteFacts
    from barnabas.testing.sim.mirroring.site import Site

Rows = dict[int, bytes | None]
"""The records of a partition, by offset."""


@dataclass(frozen=True, slots=True)
class SiteView:
    """What read_committed consumers of one site read."""

    starts: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, Rows] = field(default_factory=dict)


async def read_site(site: Site, tps: Sequence[TopicPartition], within_s: float) -> SiteView:
    """Reads all partitions, after every transaction has ended. Raises LivenessError."""
    view = SiteView(committed={tp: {} for tp in tps})
    deadline = site.world.loop.time() + within_s
    async with site.consumer(isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        async with site.consumer() as plain:
            while (ends := await plain.end_offsets(tps)) != await consumer.end_offsets(tps):
                if site.world.loop.time() > deadline:
                    raise LivenessError(f"A transaction stays open in the {site.name}.")
                await plain.poll(500)
        view.starts.update(await consumer.beginning_offsets(tps))
        consumer.assign(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            if site.world.loop.time() > deadline:
                raise LivenessError(f"The last reader of the {site.name} does not get to the end {ends}.")
            for record in await consumer.poll(500):
                view.committed[TopicPartition(record.topic, record.partition)][record.offset] = record.value
    return view


def check_views(one: SiteView, other: SiteView) -> None:
    """ReadCommittedViewsAreEqual: consumers of both clusters read the same records at the same offsets."""
    for tp in one.committed:
        start = max(one.starts[tp], other.starts[tp])  # retention may have hit one side only, before the cut-over
        ours, theirs = (
            {(offset, value) for offset, value in view.committed[tp].items() if offset >= start}
            for view in (one, other)
        )
        if ours != theirs:
            differs = sorted(ours ^ theirs)[:4]
            raise CorrectnessError(f"ReadCommittedViewsAreEqual is broken: {tp} differs at {differs}")


def check_acknowledged(view: SiteView, known: SiteFacts, *, below: Mapping[TopicPartition, int] | None = None) -> None:
    """AcknowledgedRecordsSurvive: each acknowledged record is at its offset, once; below `below` if that is given. No
    consumer reads a record of an aborted transaction."""
    for tp, records in sorted(known.acknowledged.items()):
        rows = view.committed.get(tp)
        if rows is None:
            continue
        for offset, value in sorted(records.items()):
            expected = offset >= view.starts[tp] and (below is None or offset < below.get(tp, 0))
            if expected and rows.get(offset) != value:
                raise CorrectnessError(
                    f"AcknowledgedRecordsSurvive is broken: {tp}@{offset} was acknowledged for {value[:20]!r} and has "
                    f"{rows.get(offset)!r}"
                )
    for tp, rows in view.committed.items():
        values = list(rows.values())
        if len(set(values)) < len(values):
            raise CorrectnessError(f"AcknowledgedRecordsSurvive is broken: {tp} has a record twice")
        visible = known.aborted.intersection(value for value in values if value is not None)
        if visible:
            raise CorrectnessError(
                f"AcknowledgedRecordsSurvive is broken: {tp} shows aborted records: {sorted(visible)[:3]}"
            )
