"""`Timeline`: the newest view, the committed view, and rollback."""

from __future__ import annotations

from barnabas.server.coordination.timeline import Timeline, TimelineCell, TimelineMap


def test_committed_view_excludes_changes_above_the_committed_offset() -> None:
    timeline = Timeline()
    names: TimelineMap[str, int] = TimelineMap(timeline)
    names["a"] = 1
    timeline.seal(10)
    names["a"] = 2
    names["b"] = 3
    timeline.seal(12)

    assert names.snapshot() == {"a": 2, "b": 3}
    assert names.committed() == {}
    timeline.commit(11)
    assert names.committed() == {"a": 1}
    timeline.commit(12)
    assert names.committed() == {"a": 2, "b": 3}
    assert names.settled
    assert timeline.uncommitted == 0


def test_rollback_restores_changed_added_and_removed_keys() -> None:
    timeline = Timeline()
    names: TimelineMap[str, int] = TimelineMap(timeline)
    cell = TimelineCell(timeline, "old")
    names["kept"] = 1
    names["gone"] = 2
    timeline.seal(5)
    mark = timeline.mark()
    names["kept"] = 10
    names["kept"] = 11
    names["new"] = 3
    names.pop("gone")
    cell.value = "new"
    timeline.rollback(mark)

    assert names.snapshot() == {"kept": 1, "gone": 2}
    assert cell.value == "old"
    assert cell.committed == "old"
    timeline.commit(5)
    assert names.committed() == {"kept": 1, "gone": 2}
    assert timeline.uncommitted == 0


def test_removed_key_stays_in_the_committed_view_until_its_removal_is_committed() -> None:
    timeline = Timeline()
    names: TimelineMap[str, int] = TimelineMap(timeline)
    names["a"] = 1
    timeline.seal(1)
    timeline.commit(1)
    names.pop("a")
    timeline.seal(2)

    assert names.get("a") is None
    assert names.committed_get("a") == 1
    timeline.commit(2)
    assert names.committed_get("a") is None


def test_replay_of_committed_records_keeps_no_history() -> None:
    timeline = Timeline()
    timeline.recording = False
    names: TimelineMap[str, int] = TimelineMap(timeline)
    names["a"] = 1
    timeline.seal(1)

    assert names.committed() == {"a": 1}
    assert timeline.uncommitted == 0
