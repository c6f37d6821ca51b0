"""Shell: carries out reassignments: submits them, a part at a time if wanted, waits for them, and shows progress."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.cluster.moves_throttle import Throttled, clear_throttle, throttled
from barnabas.cli.output import note, size_text
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

Moves = Mapping[TopicPartition, Sequence[int]]
"""Partition -> its new replicas, the preferred leader first."""

_REMOVER: Final = "`barnabas cluster moves`, when no reassignment is under way,"
_POLL_INTERVAL_S: Final = 1.0


async def carry_out(
    admin: AsyncAdmin,
    originals: Moves,
    planned: Moves,
    bytes_per_second: int | None,
    *,
    wait: bool = True,
    at_once: int | None = None,
    sizes: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Submit the reassignments and, with `wait`, wait for their end. Prints a note if a throttle remains set.

    With `at_once`, no broker gets more than so many replicas at a time: the moves are submitted in parts, each when the
    one before it has ended. `sizes` has the bytes that each move copies, for the progress that is shown. `originals`
    has the replicas before all reassignments.
    """
    parts = list(_parts(originals, planned, at_once if wait else None))
    async with throttled(admin, originals, planned, bytes_per_second, remover=_REMOVER) as touched:
        raise_first(await admin.alter_partition_reassignments(dict(parts[0])))
    if not wait:
        if touched.topics:
            note(f"the throttle remains set; {_REMOVER} removes it")
        return
    progress = _Progress(planned, sizes)
    progress.begin(parts[0])
    try:
        for place, part in enumerate(parts):
            if place:
                raise_first(await admin.alter_partition_reassignments(dict(part)))
                progress.begin(part)
            await _wait_until_moved(admin, part, progress)
        if touched.topics and (await clear_throttle(admin, touched.topics, touched.brokers)).is_rest_needed:
            note(f"other reassignments are under way and need the throttle; {_REMOVER} removes it")
        progress.is_over = True
    finally:
        if not progress.is_over:  # Ctrl-C and errors of the admin client
            note(_unfinished(touched, progress))


async def elect_preferred(admin: AsyncAdmin, planned: Moves) -> None:
    """Elect the preferred leaders of these partitions, where they do not lead yet."""
    from barnabas.client.admin.elections import ElectionType

    needless = ErrorCode.ELECTION_NOT_NEEDED
    results = await admin.elect_leaders(list(planned), ElectionType.PREFERRED)
    raise_first({tp: error for tp, error in results.items() if error is not None and error.code is not needless})


def as_plan(planned: Moves) -> dict[str, Any]:
    """The plan in the JSON format of kafka-reassign-partitions."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(to)} for tp, to in sorted(planned.items())
        ],
    }


def raise_first(results: Mapping[TopicPartition, BaseException | None]) -> None:
    for error in results.values():
        if error is not None:
            raise error


class _Progress:
    """Counts the moves that have begun and ended, and prints a note whenever more of them have ended."""

    def __init__(self, planned: Moves, sizes: Mapping[TopicPartition, int] | None) -> None:
        self.not_begun = set(planned)
        self.is_over = False
        self._left = set(planned)
        self._total = len(planned)
        self._sizes = sizes
        self._shown = -1

    def begin(self, part: Moves) -> None:
        self.not_begun -= set(part)

    def update(self, part: Moves, under_way: Container[TopicPartition]) -> None:
        self._left -= {tp for tp in part if tp not in under_way}
        moved = self._total - len(self._left)
        if moved in (self._shown, self._total):
            return
        self._shown = moved
        copied = ""
        if self._sizes is not None:
            total = sum(self._sizes.values())
            copied = f", {size_text(total - sum(self._sizes[tp] for tp in self._left))} of {size_text(total)}"
        note(f"{moved} of {self._total} moved{copied}")


def _unfinished(touched: Throttled, progress: _Progress) -> str:
    stays = f", and the throttle remains set; {_REMOVER} removes it" if touched.topics else ""
    rest = f". {len(progress.not_begun)} of the planned reassignments were not begun" if progress.not_begun else ""
    return f"not waiting any more: the reassignments continue{stays}{rest}"


async def _wait_until_moved(admin: AsyncAdmin, part: Moves, progress: _Progress) -> None:
    while under_way := await admin.list_partition_reassignments(part):
        progress.update(part, under_way)
        await asyncio.sleep(_POLL_INTERVAL_S)
    progress.update(part, ())


def _parts(originals: Moves, planned: Moves, at_once: int | None) -> Iterator[Moves]:
    """The moves in parts, in which no broker gets more than `at_once` replicas."""
    left = dict(sorted(planned.items()))
    while left:
        coming: Counter[int] = Counter()
        part = {}
        for tp, to in left.items():
            added = [broker for broker in to if broker not in originals.get(tp, ())]
            if at_once is None or all(coming[broker] < at_once for broker in added):
                part[tp] = to
                coming.update(added)
        left = {tp: to for tp, to in left.items() if tp not in part}
        yield part
