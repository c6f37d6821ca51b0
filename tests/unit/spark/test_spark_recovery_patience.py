"""A query whose brokers do not answer when a micro-batch is planned: a new one fails soon, another one waits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.client.errors import BootstrapError
from barnabas.spark.delivery.checkpoints import has_committed
from barnabas.spark.errors import RecoveryError
from barnabas.spark.options import QueryMode
from barnabas.spark.sink import writer
from barnabas.spark.sink.options import SinkOptions, parse_sink_options


class RestartingBrokers:
    """Answer only a client that waits."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def recover(self, *_: object, accept_loss: bool, patient: bool = False) -> int:
        self.asked.append(patient)
        if not patient:
            raise BootstrapError("no broker answers")
        return 7


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> RestartingBrokers:
    made = RestartingBrokers()
    monkeypatch.setattr(writer, "_client", lambda _: made)
    return made


def options(checkpoint: Path, *committed: int) -> SinkOptions:
    """The options of a query that has committed these micro-batches."""
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "the-query"}))
    if committed:
        (checkpoint / "commits").mkdir()
        for number in committed:
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    texts = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "checkpointLocation": str(checkpoint)}
    return parse_sink_options(texts, QueryMode.STREAM)


def test_a_new_query_fails_soon(tmp_path: Path, brokers: RestartingBrokers) -> None:
    with pytest.raises(RecoveryError, match="no broker answers"):
        writer.recover(options(tmp_path / "new"))
    assert brokers.asked == [False]


def test_a_query_that_has_written_before_waits_for_its_brokers(tmp_path: Path, brokers: RestartingBrokers) -> None:
    assert writer.recover(options(tmp_path / "running", 0, 1)) == 7
    assert brokers.asked == [False, True]


def test_only_numbers_are_commits(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.crc").touch()
    assert not has_committed(str(tmp_path))
    (tmp_path / "commits" / "0").touch()
    assert has_committed(str(tmp_path))
    assert has_committed(f"file://{tmp_path}")
    assert not has_committed(str(tmp_path / "nothing"))
    assert not has_committed(None)
