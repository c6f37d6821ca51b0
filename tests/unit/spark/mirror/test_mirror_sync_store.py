"""The offset syncs of a pair: the cases of Kafka's OffsetSyncStoreTest, and exact translation."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.offsets.runs import CopiedRuns, syncs_of
from barnabas.spark.mirror.offsets.sync_store import SLOTS, TOO_OLD, OffsetSyncStore
from barnabas.spark.mirror.offsets.translation import Translator
from barnabas.spark.mirror.ports import CopiedRange, OffsetRun
from barnabas.spark.mirror.records import OffsetSync

_TP = TopicPartition("topic1", 2)


def _store(*syncs: tuple[int, int], only_newest: bool = False, loaded: bool = True) -> OffsetSyncStore:
    store = OffsetSyncStore()
    store.begin(only_newest=only_newest)
    for upstream, downstream in syncs:
        store.add(OffsetSync(_TP, upstream, downstream))
    if loaded:
        store.loaded()
    return store


def _copied(*runs: tuple[int, int, int]) -> CopiedRange:
    found = [OffsetRun(*run) for run in runs]
    end = found[-1].last_upstream + 1 if found else 0
    return CopiedRange(_TP, found, end, sum(run.count for run in found), 0, 0, end)


def test_offsets_are_translated_to_the_sync_or_to_the_offset_after_it() -> None:
    store = _store(loaded=False)
    store.loaded()
    store.add(OffsetSync(_TP, 100, 200))
    assert store.downstream(_TP, 150) == 201
    assert store.downstream(_TP, 100) == 200
    store.add(OffsetSync(_TP, 150, 251))
    assert store.downstream(_TP, 150) == 251
    assert store.downstream(_TP, 149) == 201  # Kafka's test: the sync at 100 is still known
    store.add(OffsetSync(_TP, 200, 10))  # the downstream log begins anew
    assert store.downstream(_TP, 200) == 10
    store.add(OffsetSync(_TP, 20, 20))  # an upstream rewind clears what was known
    assert store.downstream(_TP, 20) == 20
    assert store.downstream(_TP, 19) == TOO_OLD
    assert store.downstream(_TP, 300) == 21


def test_nothing_is_translated_before_the_topic_was_read_to_its_end() -> None:
    store = _store((10, 10), loaded=False)
    assert store.downstream(_TP, 20) is None
    store.loaded()
    assert store.downstream(_TP, 20) == 11
    assert store.downstream(TopicPartition("topic1", 3), 20) is None


def test_without_checkpoints_only_the_newest_sync_counts_after_a_start() -> None:
    store = _store((10, 10), (20, 20), only_newest=True)
    assert store.downstream(_TP, 15) == TOO_OLD
    assert store.downstream(_TP, 20) == 20
    store.add(OffsetSync(_TP, 30, 30))
    assert store.downstream(_TP, 25) == 21
    assert _store((10, 10), (20, 20)).downstream(_TP, 15) == 11


def test_a_long_log_is_translated_where_kafkas_store_translates_it() -> None:
    store = _store(*((offset, offset) for offset in range(0, 1001, 10)), only_newest=True)
    for offset in range(1010, 10_001, 10):
        store.add(OffsetSync(_TP, offset, offset))
    kept = sorted({sync.upstream for sync in store.slots(_TP)})
    assert kept[:2] == [1000, 4840]
    assert kept[-6:] == [9640, 9880, 9940, 9970, 9990, 10_000]
    assert store.downstream(_TP, 999) == TOO_OLD
    assert store.downstream(_TP, 4839) == 1001


def test_evenly_spaced_syncs_expire_one_at_a_time() -> None:
    for step in (1, 3, 7, 100, 2**40 + 1):
        store, kept = _store((5, 5)), 1
        for count in range(1, 100):
            store.add(OffsetSync(_TP, 5 + count * step, count))
            now = len({sync.upstream for sync in store.slots(_TP)})
            assert now >= kept
            kept = now
            assert store.slots(_TP)[-1].upstream == 5


def test_the_slots_hold_kafkas_rules() -> None:
    store = _store(*((offset * offset // 7, offset) for offset in range(1, 400)))
    slots = store.slots(_TP)
    assert len(slots) == SLOTS
    for i in range(SLOTS):
        for j in range(i + 1, SLOTS):
            assert slots[i].upstream <= slots[j].upstream + (1 << j) - (1 << i)
            if slots[i] is not slots[j]:
                assert slots[i].upstream >= slots[j].upstream + (1 << max(i - 2, 0))


def test_the_reverse_is_the_source_record_or_the_one_after_it() -> None:
    store = _store((100, 10), (150, 40))
    assert store.upstream(_TP, 9) == TOO_OLD
    assert store.upstream(_TP, 10) == 100
    assert store.upstream(_TP, 11) == 101
    assert store.upstream(_TP, 40) == 150
    assert store.upstream(_TP, 90) == 151


def test_translation_is_exact_within_what_was_copied() -> None:
    runs = CopiedRuns()
    runs.add(_copied((5, 0, 10), (16, 11, 4)))  # a marker at 15 upstream, and one at 10 downstream
    runs.add(_copied((20, 15, 2)))
    assert [runs.downstream(_TP, offset) for offset in (4, 5, 14, 15, 16, 21, 22, 99)] == [
        None,
        0,
        9,
        10,
        11,
        16,
        17,
        17,
    ]
    assert [runs.upstream(_TP, offset) for offset in (0, 9, 10, 11, 16, 17)] == [5, 14, 15, 16, 21, 22]


def test_runs_that_were_copied_again_replace_the_former_ones() -> None:
    runs = CopiedRuns()
    runs.add(_copied((0, 0, 10)))
    runs.add(_copied((0, 50, 10)))
    assert runs.downstream(_TP, 5) == 55
    runs.forget(_TP)
    assert runs.downstream(_TP, 5) is None


def test_the_oldest_runs_are_forgotten_and_translated_by_syncs() -> None:
    runs = CopiedRuns(runs_max=2)
    for start in (0, 20, 40):
        runs.add(_copied((start, start, 10)))
    translator = Translator(_store((9, 9), (29, 29), (49, 49)), runs)
    assert runs.downstream(_TP, 5) is None
    assert translator.downstream(_TP, 12) == 10
    assert translator.downstream(_TP, 25) == 25
    assert translator.upstream(_TP, 45) == 45


def test_a_micro_batch_ends_with_a_sync_and_has_one_for_each_committed_offset() -> None:
    copied = _copied((5, 0, 10), (16, 11, 4))

    def syncs(committed: Iterable[int]) -> list[tuple[int, int]]:
        return [(sync.upstream, sync.downstream) for sync in syncs_of(copied, committed)]

    assert syncs(()) == [(19, 14)]
    assert syncs([7, 3, 7, 100]) == [(7, 2), (19, 14)]
    assert syncs([15]) == [(14, 9), (19, 14)]  # the record before the marker: what is beyond it is exact
    assert syncs_of(_copied(), [1]) == []
