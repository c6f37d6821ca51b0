"""The machine of a mirror partition: which steps it asks for, and what it stores."""

from __future__ import annotations

import random
from dataclasses import dataclass
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.server.links.fetching import machine as m
from barnabas.server.links.fetching.states import NEXT, MirrorEvent, MirrorState
from barnabas.server.links.fetching.values import MirrorMode, MirrorPosition, StoredMirror
from barnabas.server.storage.values import EpochEndOffset

S = MirrorState
ID, OTHER_ID = UUID(int=1), UUID(int=2)
RNG = random.Random(1)


@dataclass
class FakeLog:
    log_start_offset: int = 0
    log_end_offset: int = 0
    latest_epoch: int | None = None
    earlier_end: int | None = None

    def epoch_end_offset(self, epoch: int, /) -> EpochEndOffset:
        """As if each epoch had lasted to the end of the log, or to `earlier_end` if it is not the newest."""
        newest = self.latest_epoch
        if newest is None or epoch > newest:
            return EpochEndOffset(-1, -1)
        end = self.earlier_end if epoch < newest and self.earlier_end is not None else self.log_end_offset
        return EpochEndOffset(epoch, end)


def stored(mirror: m.Mirror, log: FakeLog, now_ms: int = 0) -> m.Mirror:
    """The mirror after its state was stored, which must be the next step."""
    step = m.next_step(mirror, log, now_ms)
    assert isinstance(step, m.StoreState)
    return m.on_stored(mirror, step.state)


def mirroring(
    log: FakeLog, epoch: int = 5, mode: MirrorMode = MirrorMode.ACTIVE, *, recovers: bool = False
) -> m.Mirror:
    state = StoredMirror(S.EPOCH_FENCING, 3, epoch, is_aligned=True, source_topic_id=ID)
    mirror = m.on_loaded(m.elected(epoch, MirrorMode.ACTIVE, recovers=recovers), state, log)
    mirror = stored(m.on_source_found(mirror, 2, ID, 0, RNG), log)
    assert mirror.state is S.MIRRORING
    return m.on_mode(mirror, mode, log)


def test_a_new_mirror_is_aligned_fenced_and_then_fetches() -> None:
    log = FakeLog()
    mirror = m.elected(0, MirrorMode.ACTIVE)
    assert m.next_step(mirror, log, 0) == m.LoadState()
    mirror = stored(m.on_loaded(mirror, None, log), log)
    assert m.next_step(mirror, log, 0) == m.CompareLogs()
    mirror = stored(m.on_compared(mirror, m.LogComparison(ID, 0, None), log, 0, RNG), log)
    assert (mirror.state, m.next_step(mirror, log, 0)) == (S.EPOCH_FENCING, m.FindSource())
    mirror = m.on_source_found(mirror, 7, ID, 0, RNG)
    assert m.next_step(mirror, log, 0) == m.RaiseLeaderEpoch(7 + m.EPOCH_HEADROOM)
    # the controller has raised the epoch: a new leadership begins
    again = m.on_loaded(m.elected(17, MirrorMode.ACTIVE), mirror.current, log)
    assert m.next_step(again, log, 0) == m.FindSource()
    again = stored(m.on_source_found(again, 7, ID, 0, RNG), log)
    assert m.next_step(again, log, 0) == m.FetchSource()
    assert again.current == StoredMirror(S.MIRRORING, 2, 17, is_aligned=True, source_topic_id=ID)


def test_a_later_epoch_of_the_source_stops_the_fetching_until_ours_is_raised() -> None:
    log = FakeLog(0, 10, 2)
    mirror = m.on_source_found(mirroring(log), 6, ID, 0, RNG)
    assert mirror.state is S.EPOCH_FENCING
    assert m.next_step(stored(mirror, log), log, 0) == m.RaiseLeaderEpoch(16)


def test_a_new_leader_continues_a_mirror() -> None:
    log = FakeLog(0, 10, 2)
    state = StoredMirror(S.MIRRORING, 4, 5, is_aligned=True, source_topic_id=ID)
    mirror = m.on_loaded(m.elected(6, MirrorMode.ACTIVE), state, log)
    assert mirror.current == replace(state, state=S.EPOCH_FENCING, state_epoch=5, leader_epoch=6)


def test_pause_and_resume() -> None:
    log = FakeLog(0, 10, 2)
    mirror = stored(mirroring(log, mode=MirrorMode.PAUSED), log)
    assert (mirror.state, m.next_step(mirror, log, 0)) == (S.PAUSING, m.DropFetcher())
    mirror = stored(m.on_drained(mirror), log)
    assert (mirror.state, m.next_step(mirror, log, 0)) == (S.PAUSED, m.Idle())
    mirror = m.on_mode(mirror, MirrorMode.ACTIVE, log)
    assert mirror.state is S.EPOCH_FENCING


def test_a_stop_stores_the_position_first_and_then_cuts_over() -> None:
    log = FakeLog(0, 10, 9)
    mirror = mirroring(log, epoch=9, mode=MirrorMode.STOPPING)
    assert mirror.current is not None
    assert mirror.current.position == MirrorPosition(9, 10)
    mirror = stored(mirror, log)
    assert m.next_step(mirror, log, 0) == m.RaiseLeaderEpoch(10)  # local records must differ from mirrored ones
    mirror = m.on_loaded(m.elected(10, MirrorMode.STOPPING), mirror.current, log)
    assert m.next_step(mirror, log, 0) == m.RaiseProducerIds()
    mirror = m.on_barrier(mirror)
    assert m.next_step(mirror, log, 0) == m.AbortTransactions()
    log.log_end_offset = 12  # two markers
    mirror = stored(m.on_aborted(mirror), log)
    assert mirror.current is not None
    assert (mirror.state, mirror.current.position) == (S.STOPPED, MirrorPosition(9, 10))
    assert m.next_step(mirror, log, 0) == m.Idle()


def test_a_leader_that_continues_a_stop_takes_its_own_end_if_that_is_earlier_and_never_a_marker() -> None:
    state = StoredMirror(S.STOPPING, 8, 5, MirrorPosition(4, 10), is_aligned=True)
    shorter = m.on_loaded(m.elected(6, MirrorMode.STOPPING), state, FakeLog(0, 8, 3))
    with_marker = m.on_loaded(m.elected(6, MirrorMode.STOPPING), state, FakeLog(0, 11, 5))
    assert shorter.current is not None and with_marker.current is not None
    assert shorter.current.position == MirrorPosition(3, 8)
    assert with_marker.current.position == MirrorPosition(4, 10)


def test_a_failed_mirror_can_be_stopped_and_paused() -> None:
    log = FakeLog(0, 10, 2)
    failed = stored(m.on_failed(mirroring(log), "why", 0, RNG), log)
    assert failed.current is not None
    assert (failed.state, failed.current.reason) == (S.FAILED, "why")
    assert m.on_mode(failed, MirrorMode.STOPPING, log).state is S.STOPPING
    assert m.on_mode(failed, MirrorMode.PAUSED, log).state is S.PAUSING


def test_a_failed_mirror_is_tried_again_after_a_growing_back_off() -> None:
    log = FakeLog(0, 10, 2)
    mirror, now_ms, waits = mirroring(log), 0, []
    for _ in range(20):
        mirror = stored(m.on_failed(mirror, "why", now_ms, RNG), log, now_ms)
        step = m.next_step(mirror, log, now_ms)
        assert isinstance(step, m.Idle) and step.until_ms is not None
        waits.append(step.until_ms - now_ms)
        now_ms = step.until_ms
        assert m.next_step(mirror, log, now_ms) == m.Retry()
        mirror = stored(m.on_retry(mirror), log, now_ms)
        assert mirror.state is S.EPOCH_FENCING
    assert 80 <= waits[0] <= 120
    assert 240_000 <= waits[-1] <= 360_000
    assert m.on_answered(mirror).fails == 0


def test_a_topic_that_was_created_again_fails_the_mirror() -> None:
    log = FakeLog(0, 10, 2)
    mirror = m.on_source_found(mirroring(log), 2, OTHER_ID, 0, RNG)
    assert mirror.state is S.FAILED
    assert "deleted and created again" in mirror.trouble


def test_a_failback_truncates_to_the_end_of_the_epoch_that_an_unclean_election_ended_earlier() -> None:
    log = FakeLog(0, 10, 4, earlier_end=5)
    mirror = stored(m.on_loaded(m.elected(5, MirrorMode.ACTIVE), None, log), log)
    mirror = m.on_compared(mirror, m.LogComparison(ID, 0, MirrorPosition(3, 7)), log, 0, RNG)
    assert m.next_step(stored(mirror, log), log, 0) == m.SaveTail(5)


def test_a_failback_truncates_to_the_position_of_the_opposite_mirror_in_a_later_epoch() -> None:
    log = FakeLog(0, 10, 4)
    mirror = stored(m.on_loaded(m.elected(5, MirrorMode.ACTIVE), None, log), log)
    mirror = m.on_compared(mirror, m.LogComparison(ID, 0, MirrorPosition(3, 7)), log, 0, RNG)
    mirror = stored(mirror, log)
    assert m.next_step(mirror, log, 0) == m.SaveTail(7)
    mirror = m.on_tail_saved(mirror)
    assert m.next_step(mirror, log, 0) == m.RaiseLeaderEpoch(6)
    # another replica leads now: it saves its own tail before it truncates
    other = m.on_loaded(m.elected(6, MirrorMode.ACTIVE), mirror.current, log)
    assert m.next_step(other, log, 0) == m.SaveTail(7)
    other = m.on_tail_saved(other)
    assert m.next_step(other, log, 0) == m.TruncateMirror(7)
    log.log_end_offset = 7
    assert m.next_step(other, log, 0) == m.AwaitReplicas(7)
    other = stored(m.on_converged(other, log), log)
    assert other.current == StoredMirror(S.EPOCH_FENCING, 2, 6, is_aligned=True, source_topic_id=ID)


def test_records_of_unknown_origin_are_not_truncated() -> None:
    log = FakeLog(0, 10, 4)
    mirror = stored(m.on_loaded(m.elected(5, MirrorMode.ACTIVE), None, log), log)
    mirror = m.on_compared(mirror, m.LogComparison(ID, 0, None), log, 0, RNG)
    assert mirror.state is S.FAILED


@pytest.mark.parametrize("mode", [MirrorMode.STOPPING, MirrorMode.PAUSED])
def test_a_truncation_that_has_begun_is_completed_before_a_stop_or_a_pause(mode: MirrorMode) -> None:
    log = FakeLog(0, 10, 4)
    state = StoredMirror(S.LOG_ALIGNMENT, 1, 5, truncate_to=7, fence_epoch=6, source_topic_id=ID)
    mirror = m.on_loaded(m.elected(6, mode), state, log)
    assert m.next_step(mirror, log, 0) == m.SaveTail(7)
    log.log_end_offset = 7
    mirror = m.on_converged(mirror, log)
    assert mirror.state is (S.STOPPING if mode is MirrorMode.STOPPING else S.PAUSING)


def test_an_unclean_election_on_the_source_fails_the_mirror_or_truncates_it_as_the_config_says() -> None:
    log = FakeLog(0, 10, 2)
    assert m.on_diverged(mirroring(log), 8, 0, RNG).state is S.FAILED
    mirror = stored(m.on_diverged(mirroring(log, recovers=True), 8, 0, RNG), log)
    assert (mirror.state, m.next_step(mirror, log, 0)) == (S.ULE_RECOVERY, m.SaveTail(8))


def test_a_stopped_mirror_that_is_started_again_is_aligned_anew() -> None:
    log = FakeLog(0, 10, 2)
    state = StoredMirror(S.STOPPED, 9, 5, MirrorPosition(2, 9), is_aligned=True, source_topic_id=ID)
    mirror = stored(m.on_loaded(m.elected(6, MirrorMode.ACTIVE), state, log), log)
    assert m.next_step(mirror, log, 0) == m.CompareLogs()


def test_a_step_that_failed_is_repeated_after_a_back_off() -> None:
    log = FakeLog()
    mirror = m.on_trouble(m.elected(0, MirrorMode.ACTIVE), "no coordinator", 1_000, RNG)
    step = m.next_step(mirror, log, 1_000)
    assert isinstance(step, m.Idle) and step.until_ms is not None and 1_080 <= step.until_ms <= 1_120
    assert m.next_step(mirror, log, step.until_ms) == m.LoadState()


def test_a_failover_does_not_wait_for_the_back_off_of_a_source_that_is_gone() -> None:
    log = FakeLog(log_end_offset=10, latest_epoch=2)
    mirror = m.on_trouble(mirroring(log), "the source does not answer", 0, RNG)
    assert isinstance(m.next_step(mirror, log, 0), m.Idle)
    assert isinstance(m.next_step(m.on_mode(mirror, MirrorMode.STOPPING, log), log, 0), m.StoreState)
    unread = m.on_trouble(m.elected(0, MirrorMode.ACTIVE), "no coordinator", 0, RNG)
    assert m.next_step(m.on_mode(unread, MirrorMode.STOPPING, log), log, 0) == m.LoadState()


def test_the_table_has_every_state_and_only_a_stopping_partition_becomes_writable() -> None:
    assert set(NEXT) == set(S)
    assert [state for state in S if S.STOPPED in NEXT[state].values()] == [S.STOPPING]
    assert all(NEXT[state].get(MirrorEvent.STOP) is S.STOPPING for state in S if state not in (S.STOPPING, S.STOPPED))
