"""Translation of offsets: never ahead, monotonic, and exact where the copied runs are known."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.offsets.runs import CopiedRuns, syncs_of
from barnabas.spark.mirror.offsets.sync_store import OffsetSyncStore
from barnabas.spark.mirror.offsets.translation import Translator
from barnabas.spark.mirror.ports import CopiedRange, OffsetRun

_TP = TopicPartition("t", 0)


@st.composite
def _logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """The offsets of each record in the source and in its copy; markers and compaction leave gaps in both."""
    steps = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=150))
    upstream, downstream, pairs = draw(st.integers(0, 2**40)), draw(st.integers(0, 50)), []
    for up, down in steps:
        upstream, downstream = upstream + up, downstream + down
        pairs.append((upstream, downstream))
    return pairs


def _runs(pairs: list[tuple[int, int]]) -> list[OffsetRun]:
    runs: list[OffsetRun] = []
    for upstream, downstream in pairs:
        last = runs[-1] if runs else None
        if last is not None and (upstream, downstream) == (last.last_upstream + 1, last.last_downstream + 1):
            runs[-1] = OffsetRun(last.upstream, last.downstream, last.count + 1)
        else:
            runs.append(OffsetRun(upstream, downstream, 1))
    return runs


def _batches(pairs: list[tuple[int, int]], sizes: list[int]) -> list[CopiedRange]:
    batches, at = [], 0
    for size in [*sizes, len(pairs)]:
        part = pairs[at : at + size]
        at += size
        if part:
            end = part[-1][0] + 1
            batches.append(CopiedRange(_TP, _runs(part), end, len(part), 0, 0, end))
    return batches


def _first_unread(pairs: list[tuple[int, int]], position: int, side: int) -> int | None:
    """The offset, on the other side, of the first record that a group at `position` has not read."""
    return next((pair[1 - side] for pair in pairs if pair[side] >= position), None)


def _check(translated: int | None, unread: int | None, end: int) -> None:
    if translated is not None and translated >= 0:
        assert translated <= (end if unread is None else unread), "ahead: the group would miss a record"


@settings(max_examples=150, deadline=None)
@given(_logs(), st.lists(st.integers(1, 20), max_size=20), st.lists(st.integers(0, 200), max_size=5))
def test_translation_is_never_ahead_and_monotonic(
    pairs: list[tuple[int, int]], sizes: list[int], groups: list[int]
) -> None:
    committed = [pairs[0][0] + offset for offset in groups]
    store, runs = OffsetSyncStore(), CopiedRuns(runs_max=8)
    store.loaded()
    for batch in _batches(pairs, sizes):
        runs.add(batch)
        for sync in syncs_of(batch, committed):
            store.add(sync)
    (first_up, first_down), (last_up, last_down) = pairs[0], pairs[-1]
    for translator in (Translator(store), Translator(store, runs)):
        ups, downs = range(first_up - 1, last_up + 3), range(first_down - 1, last_down + 3)
        forward = [translator.downstream(_TP, offset) for offset in ups]
        backward = [translator.upstream(_TP, offset) for offset in downs]
        for offset, found in zip(ups, forward, strict=True):
            _check(found, _first_unread(pairs, offset, 0), last_down + 1)
        for offset, found in zip(downs, backward, strict=True):
            _check(found, _first_unread(pairs, offset, 1), last_up + 1)
        for found in (forward, backward):
            known = [offset for offset in found if offset is not None]
            assert known == sorted(known)


@settings(max_examples=100, deadline=None)
@given(_logs(), st.lists(st.integers(1, 20), max_size=20))
def test_translation_by_runs_is_exact_in_both_directions(pairs: list[tuple[int, int]], sizes: list[int]) -> None:
    runs = CopiedRuns()
    for batch in _batches(pairs, sizes):
        runs.add(batch)
    for upstream, downstream in pairs:
        assert runs.downstream(_TP, upstream) == downstream
        assert runs.upstream(_TP, downstream) == upstream


@settings(max_examples=100, deadline=None)
@given(_logs(), st.integers(0, 149))
def test_a_committed_offset_of_the_last_batch_is_exact_by_its_sync(pairs: list[tuple[int, int]], place: int) -> None:
    upstream, downstream = pairs[place % len(pairs)]
    store = OffsetSyncStore()
    store.loaded()
    for batch in _batches(pairs, []):
        for sync in syncs_of(batch, [upstream]):
            store.add(sync)
    assert store.downstream(_TP, upstream) == downstream
    assert store.downstream(_TP, pairs[-1][0] + 1) == pairs[-1][1] + 1
