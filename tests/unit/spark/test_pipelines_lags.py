"""The lag of a pipeline that may not run, from its checkpoints and the brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.errors import SparkSourceError
from barnabas.spark.pipelines import lags
from barnabas.spark.source.lag import source_lag
from barnabas.spark.source.positions import Position

T0 = TopicPartition("t", 0)


def flow(name: str, checkpoint: Path | None, servers: str | None = "host:1") -> dict[str, Any]:
    return {"flow": name, "lag": 1, "checkpoint": checkpoint and checkpoint.as_uri(), "servers": servers}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "offsets").mkdir()
    return tmp_path


def test_the_lag_is_read_from_the_checkpoint(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def read_lags(options: dict[str, str], *, checkpoint: Path) -> list[Any]:
        asked.append((options["kafka.bootstrap.servers"], checkpoint))
        return [source_lag(Position({T0: 3}), {T0: 10}), source_lag(Position({T0: 9}), {T0: 10})]

    monkeypatch.setattr(lags, "read_lags", read_lags)
    given = [flow("f", checkpoint), flow("view", None), flow("begun", checkpoint / "none"), flow("s", checkpoint, None)]
    refreshed, problems = lags.refresh_lags(given)
    assert asked == [("host:1", checkpoint)]
    assert ([found["lag"] for found in refreshed], problems) == ([8, 1, None, 1], [])
    assert refreshed[0]["sources"][0] == {
        "description": "barnabas[t]",
        "metrics": {"minOffsetsBehindLatest": "7", "maxOffsetsBehindLatest": "7", "avgOffsetsBehindLatest": "7.0"},
    }


def test_brokers_that_do_not_answer_are_asked_once(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read_lags(options: dict[str, str], *, checkpoint: Path) -> list[Any]:
        asked.append(options["kafka.bootstrap.servers"])
        raise SparkSourceError("no broker answers")

    monkeypatch.setattr(lags, "read_lags", read_lags)
    refreshed, problems = lags.refresh_lags([flow("f", checkpoint), flow("g", checkpoint)])
    assert (asked, [found["lag"] for found in refreshed]) == (["host:1"], [1, 1])
    assert problems == [f"the lag of {name} is the last one that it reported: no broker answers" for name in "fg"]


def test_a_flow_without_a_position_has_an_unknown_lag_and_says_for_which_topics_it_waits(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def missing(sources: list[dict[str, str]]) -> list[str]:
        asked.extend(options["subscribe"] for options in sources)
        return ["orders"]

    monkeypatch.setattr(lags, "read_lags", lambda options, *, checkpoint: [source_lag(None, {})])
    monkeypatch.setattr(lags, "missing_topics", missing)
    given = {**flow("f", checkpoint), "topics": ["orders", "payments", "pattern log-.*"], "waiting_for": []}
    (found,), problems = lags.refresh_lags([given])
    assert (found["lag"], found["waiting_for"], asked) == (None, ["orders"], ["orders,payments"])
    assert problems == [
        "f waits for the topic orders, which does not exist yet, and reads from the beginning once there are records"
    ]
