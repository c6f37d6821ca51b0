"""The table of `bench.connectors`: medians of the rounds, and the range of their ratios."""

from __future__ import annotations

from bench.connectors.__main__ import Plan, sheet
from bench.connectors.measuring import P99, SNAPSHOT, Load

PLAN = Plan(["postgres"], ["capture"], Load(1_000, 500, 4), 2, True, "barnabas")


def test_a_ratio_is_that_of_a_round_and_above_one_where_ours_is_better() -> None:
    ours = [{SNAPSHOT: 400.0, P99: 20.0}, {SNAPSHOT: 900.0, P99: 30.0}]
    theirs = [{SNAPSHOT: 200.0, P99: 60.0}, {SNAPSHOT: 300.0, P99: 15.0}]
    table = sheet("PostgreSQL", PLAN, {"Barnabas": ours, "Debezium": theirs})
    assert table.heading == ("", "Barnabas", "Debezium", "better by")
    assert table.rows == [
        ("snapshot", "650 rows/s", "250 rows/s", "2.50x (2.00 to 3.00)"),
        ("latency at 50 rows/s, p99", "25.0 ms", "37.5 ms", "1.75x (0.50 to 3.00)"),
    ]


def test_without_a_peer_there_are_our_figures_only() -> None:
    table = sheet("MariaDB", PLAN, {"Barnabas": [{SNAPSHOT: 400.0}]})
    assert table.heading == ("", "Barnabas")
    assert table.rows == [("snapshot", "400 rows/s")]
