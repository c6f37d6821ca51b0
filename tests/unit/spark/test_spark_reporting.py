"""What a user sees of an error: one line, and a traceback without the frames of this package."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping

import pytest
from pyspark.sql.types import StringType, StructType

from barnabas.client.errors import BootstrapError
from barnabas.spark import connection
from barnabas.spark.connection import REACH_TIMEOUT_MS, LogClient, require_partitions
from barnabas.spark.errors import OptionError
from barnabas.spark.reporting import readable_errors
from barnabas.spark.sink import writer
from barnabas.spark.source.positions import SourceSubscription


def deep() -> None:
    raise OptionError("valueFormat is\nwrong")


@readable_errors
def function() -> None:
    deep()


@readable_errors
def generator() -> Iterator[int]:
    yield 1
    deep()


@pytest.mark.parametrize("call", [function, lambda: list(generator())])
def test_an_error_is_one_line_on_standard_error_and_has_a_short_traceback(
    call: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(OptionError) as caught:
        call()  # type: ignore[operator]
    assert capsys.readouterr().err == "barnabas: OptionError: valueFormat is wrong\n"
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "deep" not in frames


def test_other_exceptions_keep_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @readable_errors
    def broken() -> None:
        raise KeyError("a fault of the program")

    with pytest.raises(KeyError):
        broken()
    assert capsys.readouterr().err == ""


def test_a_cluster_that_never_answered_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    client = LogClient({"bootstrap.servers": "127.0.0.1:1"})
    deadlines: list[float | None] = []
    deadline = client.cluster.deadline
    monkeypatch.setattr(
        client.cluster, "deadline", lambda timeout_ms=None: deadlines.append(timeout_ms) or deadline(200)
    )
    try:
        with pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
            require_partitions(client, SourceSubscription(topics=("t",)))
    finally:
        client.close()
    assert deadlines == [REACH_TIMEOUT_MS]


def test_a_batch_write_to_a_cluster_that_never_answered_fails_before_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, str]] = []

    class Unreachable:
        def reach(self) -> None:
            raise BootstrapError("nothing answers")

    monkeypatch.setattr(connection, "connect", lambda settings: asked.append(settings) or Unreachable())
    options = {"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.linger.ms": "5"}
    with pytest.raises(BootstrapError):
        writer.batch_writer(options, StructType().add("value", StringType()), False)
    assert asked == [{"bootstrap.servers": "h:1"}]  # a producer's settings are none of this client's
