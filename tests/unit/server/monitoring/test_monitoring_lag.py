"""The lag of consumer groups, in records and in seconds."""

from __future__ import annotations

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.server.monitoring.lag import HISTORY_MAX, EndHistory, GroupLag, GroupOffset, LagTable

T0 = TopicPartition("t", 0)


def history(*looks: tuple[float, int]) -> EndHistory:
    found = EndHistory()
    for now, end in looks:
        found.add(now, end)
    return found


@pytest.mark.parametrize(
    ("looks", "now", "offset", "seconds"),
    [
        ([], 5, 0, 0),
        ([(0, 10)], 5, 10, 0),
        ([(0, 10)], 5, 3, 5),
        ([(0, 10), (10, 20)], 12, 10, 12),
        ([(0, 10), (10, 20)], 12, 15, 7),
        ([(0, 10), (10, 20), (20, 20), (30, 20)], 30, 15, 25),
        ([(0, 10), (10, 20), (20, 5)], 20, 3, 0),
        ([(0, 10), (10, 20), (20, 5)], 30, 3, 10),
    ],
    ids=["no look", "no lag", "since the first look", "at a look", "between looks", "idle", "created", "created again"],
)
def test_seconds_since_the_oldest_unread_record(
    looks: list[tuple[float, int]], now: float, offset: int, seconds: float
) -> None:
    assert history(*looks).seconds_behind(now, offset) == seconds


def test_a_long_history_keeps_its_first_and_last_looks() -> None:
    long = history(*((float(now), now * 10) for now in range(10 * HISTORY_MAX)))
    end = 10 * HISTORY_MAX - 1
    assert long.seconds_behind(float(end), end * 10 - 5) == pytest.approx(0.5)
    assert long.seconds_behind(float(end), 0) == pytest.approx(end)


def test_lags_of_groups() -> None:
    table = LagTable()
    table.update(0, [GroupOffset("g", T0, 4), GroupOffset("h", TopicPartition("gone", 1), 9)], {T0: 10})
    assert table.lags == [
        GroupLag("g", T0, 4, 6, 0.0),
        GroupLag("h", TopicPartition("gone", 1), 9, None, 0.0),
    ]
    table.update(20, [GroupOffset("g", T0, 4)], {T0: 12})
    assert table.lags == [GroupLag("g", T0, 4, 8, 20.0)]
    table.update(30, [GroupOffset("g", T0, 15)], {T0: 12})
    assert table.lags == [GroupLag("g", T0, 15, 0, 0.0)], "a group that is ahead has no lag"
    table.update(40, [], {})
    assert table.lags == []
