"""The decisions of the supervisor of `barnabas serve --processes N`."""

from __future__ import annotations

from barnabas.cli.serve.supervision import ProcessAction, Supervision

START, TERMINATE, KILL = ProcessAction.START, ProcessAction.TERMINATE, ProcessAction.KILL


def running(count: int) -> Supervision:
    supervision = Supervision(count)
    supervision.poll(0.0)
    for place in range(count):
        supervision.on_ready(place)
    return supervision


def test_all_processes_start_at_once() -> None:
    supervision = Supervision(3)
    assert supervision.poll(0.0) == [(0, START), (1, START), (2, START)]
    assert supervision.poll(1.0) == []
    assert not supervision.was_ready and supervision.exit_code is None


def test_exit_before_all_are_ready_stops_the_others() -> None:
    supervision = Supervision(3)
    supervision.poll(0.0)
    supervision.on_ready(0)
    supervision.on_ready(1)
    assert supervision.on_exit(2, 2, 0.5) is None
    assert supervision.poll(0.5) == [(1, TERMINATE)]
    supervision.on_exit(1, 0, 0.6)
    assert supervision.poll(0.6) == [(0, TERMINATE)]
    supervision.on_exit(0, 0, 0.7)
    assert supervision.poll(0.7) == [] and supervision.exit_code == 2, "the code of the process that failed"


def test_clean_exit_before_all_are_ready_is_a_failure() -> None:
    supervision = Supervision(1)
    supervision.poll(0.0)
    supervision.on_exit(0, 0, 0.5)
    supervision.poll(0.5)
    assert supervision.exit_code == 1


def test_process_that_exits_is_started_again_after_growing_pauses() -> None:
    supervision = running(2)
    now, pauses = 100.0, []
    for _ in range(8):
        pause = supervision.on_exit(1, -9, now)
        assert pause is not None
        pauses.append(pause)
        assert supervision.poll(now + pause - 0.01) == []
        assert supervision.next_start_at() == now + pause
        now += pause
        assert supervision.poll(now) == [(1, START)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert supervision.on_exit(1, -9, now + 60.0) == 0.5, "the process ran for a minute"
    assert supervision.exit_code is None


def test_stop_ends_the_brokers_before_the_controller() -> None:
    supervision = running(3)
    supervision.on_stop()
    assert supervision.poll(1.0) == [(2, TERMINATE), (1, TERMINATE)]
    supervision.on_exit(1, 0, 1.1)
    assert supervision.poll(1.1) == []
    supervision.on_exit(2, 0, 1.2)
    assert supervision.poll(1.2) == [(0, TERMINATE)]
    supervision.on_exit(0, 0, 1.3)
    supervision.poll(1.3)
    assert supervision.exit_code == 0


def test_second_stop_kills_every_process_once() -> None:
    supervision = running(2)
    supervision.on_stop()
    supervision.poll(1.0)
    supervision.on_stop()
    assert supervision.poll(1.1) == [(1, KILL), (0, KILL)]
    assert supervision.poll(1.2) == []
    supervision.on_exit(1, -9, 1.3)
    supervision.on_exit(0, -9, 1.3)
    supervision.poll(1.4)
    assert supervision.exit_code == 1


def test_stop_does_not_start_a_process_that_waits_for_its_restart() -> None:
    supervision = running(2)
    supervision.on_exit(1, 1, 5.0)
    supervision.on_stop()
    assert supervision.poll(9.0) == [(0, TERMINATE)]
    assert supervision.next_start_at() is None
