"""A query that is stopped in a micro-batch: what its unfinished tasks have open is aborted, and nothing of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client.values import HandedOverTransaction
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark.delivery import client as delivery
from barnabas.spark.delivery.client import DeliveryClient
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.options import QueryMode
from barnabas.spark.sink import writer
from barnabas.spark.sink.options import SinkOptions, parse_sink_options
from barnabas.spark.sink.rows import row_layout
from barnabas.spark.sink.tasks import Attempt, Written
from barnabas.spark.sink.writer import StreamWriter

NAME = SinkName("p", "query")
OURS, FOREIGN = (NAME.transactional_id(run, 7, 0, 0) for run in ("run-ours", "run-other"))


class Coordinators:
    """Answers with these ids, one list for each question, and then with the last one; recovering empties the list."""

    def __init__(self, *lists: Sequence[str]) -> None:
        self._lists = [list(ids) for ids in lists]
        self.recoveries = 0

    async def open_ids(self, name: SinkName) -> list[str]:
        return self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]

    async def recover(self, name: SinkName) -> int:
        self.recoveries += 1
        self._lists[0] = [] if len(self._lists) == 1 else self._lists[0]
        return self.recoveries


def abort(coordinators: Coordinators, monkeypatch: pytest.MonkeyPatch, run: str | None = None) -> int:
    monkeypatch.setattr(delivery, "TASKS_END_S", 0.05)
    monkeypatch.setattr(delivery, "PAUSE_S", 0.001)
    client = DeliveryClient.__new__(DeliveryClient)
    made: Any = client
    made._cluster = SimpleNamespace(metadata=SimpleNamespace(brokers={1: "a broker"}))
    made._transactions = coordinators
    made._driver = lambda *_: coordinators
    asyncio.run(client._abort_unfinished(NAME, "ledger", run))
    return coordinators.recoveries


def test_what_tasks_open_after_the_stop_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abort(Coordinators([], [], [OURS]), monkeypatch) == 1


def test_without_open_transactions_no_generation_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abort(Coordinators([]), monkeypatch) == 0


@pytest.mark.parametrize("seen", [[[OURS, FOREIGN]], [[OURS], [FOREIGN]], [[OURS], [OURS, FOREIGN]]])
def test_a_driver_that_has_taken_over_is_left_alone(monkeypatch: pytest.MonkeyPatch, seen: list[list[str]]) -> None:
    assert abort(Coordinators(*seen), monkeypatch) == len(seen) - 1


def test_the_run_of_finished_tasks_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert abort(Coordinators([FOREIGN]), monkeypatch, "run-ours") == 0


class Client:
    """Takes the calls of the writer."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, object]] = []
        self._error = error

    def abort_unfinished(self, name: SinkName, ledger: str, run: str | None) -> None:
        self.calls.append(("unfinished", run))
        if self._error is not None:
            raise self._error

    def abort(self, name: SinkName, ledger: str, transactions: Sequence[HandedOverTransaction]) -> None:
        self.calls.append(("finished", len(transactions)))


FINISHED = Written(Attempt("query", "run-ours-and-more", 7, 0, 0), 3, HandedOverTransaction(OURS, 1, 0))


def stream_writer(directory: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> StreamWriter:
    monkeypatch.setattr(writer, "_client", lambda _: client)
    texts = {"kafka.bootstrap.servers": "h:1", "topic": "t", "checkpointLocation": str(directory)}
    options: SinkOptions = parse_sink_options(texts, QueryMode.STREAM)
    return StreamWriter(options, row_layout({"value": "string"}, options))


@pytest.mark.parametrize(
    ("messages", "calls"),
    [
        ([None, None], [("unfinished", None)]),
        ([None, FINISHED], [("unfinished", "run-ours")]),
        ([FINISHED], [("finished", 1)]),
        ([], []),
    ],
)
def test_abort_calls_what_the_messages_need(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: list[Written | None],
    calls: list[tuple[str, object]],
) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    client = Client()
    stream_writer(tmp_path, client, monkeypatch).abort(messages, 7)
    assert client.calls == calls


def test_without_a_readable_checkpoint_only_finished_tasks_are_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client()
    stream_writer(tmp_path / "absent", client, monkeypatch).abort([None, FINISHED], 7)
    assert client.calls == [("finished", 1)]


@pytest.mark.parametrize("error", [TimeoutError(), KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)])
def test_brokers_that_do_not_answer_are_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
    stream_writer(tmp_path, Client(error), monkeypatch).abort([None], 7)
    assert "may be open until the query is started again" in caplog.text
