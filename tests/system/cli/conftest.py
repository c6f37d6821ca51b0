"""Runs commands in this process, with their arguments, input and output, against one embedded broker."""

from __future__ import annotations

import io
import json
import sys
import tomllib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing import EmbeddedBroker


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Result]


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def module_of(command: str) -> str:
    """The module of a command with Kafka's name, as `pyproject.toml` has it."""
    scripts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["scripts"]
    return str(scripts[command]).partition(":")[0]


@pytest.fixture
def cli(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`cli("topics", "list")` is `barnabas topics list`; `cli("kafka-topics", "--list")` is Kafka's twin."""
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", broker.bootstrap_servers)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        name = arguments[0]
        if name.startswith("kafka-"):
            module = module_of(name)
            argv = [*arguments, "--bootstrap-server", broker.bootstrap_servers]
        else:
            module, argv = "barnabas.cli.app", ["barnabas", *arguments]
        monkeypatch.setattr(sys, "argv", argv)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = 0
        try:
            import_module(module).main()
        except SystemExit as left:
            code = int(left.code or 0)
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    return run


@pytest.fixture
def topic(cli: Cli) -> str:
    """A topic of the test's own, with two partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    assert cli("topics", "create", name, "--partitions", "2").code == 0
    return name


@pytest.fixture
def filled(cli: Cli, topic: str) -> str:
    """With ten records k0=v0 to k9=v9."""
    lines = "".join(f"k{i}:v{i}\n" for i in range(10))
    assert cli("produce", topic, "--key-separator", ":", stdin=lines.encode()).code == 0
    return topic
