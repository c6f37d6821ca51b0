"""The environment of a process before its first Spark session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.spark import environment


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ensure_java", lambda: Path("/java"))
    for name in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP", "PYSPARK_UDS_MODE"):
        monkeypatch.setenv(name, "")  # restored after the test
        monkeypatch.delenv(name)


def test_workers_run_this_interpreter_and_talk_over_unix_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.prepare_environment() == Path("/java")
    assert environment.os.environ["PYSPARK_PYTHON"] == sys.executable
    assert environment.os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert environment.os.environ["PYSPARK_UDS_MODE"] == "true"


def test_given_values_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_UDS_MODE", "false")
    environment.prepare_environment()
    assert environment.os.environ["PYSPARK_UDS_MODE"] == "false"


def test_a_system_without_unix_sockets_keeps_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(environment.socket, "AF_UNIX")
    environment.prepare_environment()
    assert "PYSPARK_UDS_MODE" not in environment.os.environ
