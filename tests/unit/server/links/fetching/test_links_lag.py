"""The lag of a mirror in time: from the newest answer of the source whose records are all here."""

from __future__ import annotations

from barnabas.server.links.fetching.lag import MirrorTimeLag


def test_nothing_is_known_before_the_first_answer() -> None:
    assert MirrorTimeLag().milliseconds(0, 0, 1_000) == -1


def test_a_mirror_that_copies_a_long_log_is_behind_since_it_began() -> None:
    lag = MirrorTimeLag()
    lag.on_answer(1_000, 0, 100)
    lag.on_answer(1_000, 200, 300)
    assert lag.milliseconds(400, 300, 500) == 400


def test_under_load_the_lag_is_counted_from_the_answer_whose_records_are_here() -> None:
    lag = MirrorTimeLag()
    lag.on_answer(100, 0, 1_000)
    lag.on_answer(200, 100, 1_050)  # all records of the first answer are here
    assert lag.milliseconds(150, 1_050, 1_060) == 60
    assert lag.milliseconds(200, 1_050, 1_060) == 10
    lag.on_answer(300, 150, 1_100)  # those of the second are not yet: still the first
    assert lag.milliseconds(150, 1_100, 1_100) == 100


def test_an_idle_source_that_answers_leaves_no_lag_and_one_that_is_gone_does() -> None:
    lag = MirrorTimeLag()
    lag.on_answer(10, 10, 1_000)
    assert lag.milliseconds(10, 60_000, 60_200) == 200  # incremental answers without this partition
    assert lag.milliseconds(10, 60_000, 120_000) == 60_000
