"""What only real processes show: signals, pipes, ports and locks."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.core.child_processes import start_child
from barnabas.testing import EmbeddedBroker
from tests.system.cli.conftest import Cli

BARNABAS = [sys.executable, "-m", "barnabas"]


def start(broker: EmbeddedBroker, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap_servers}
    pipe = subprocess.PIPE
    return start_child([*BARNABAS, *arguments], stdout=pipe, stderr=pipe, env=environment)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_reading_and_commits_what_was_read(
    cli: Cli, broker: EmbeddedBroker, filled: str, number: signal.Signals
) -> None:
    group = f"g-{filled}"
    reader = start(broker, "consume", filled, "--group", group, "--from-beginning")
    assert reader.stdout is not None
    for _ in range(10):
        assert reader.stdout.readline()
    reader.send_signal(number)
    _, errors = reader.communicate(timeout=90)
    assert reader.returncode == 130
    assert b"10 records" in errors
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert [o["lag"] for o in cli("groups", "describe", group, "--json").json["offsets"]] == [0, 0]


def test_consume_ends_when_its_output_pipe_is_closed(broker: EmbeddedBroker, cli: Cli, topic: str) -> None:
    cli("produce", topic, stdin=b"first\n")
    reader = start(broker, "consume", topic, "--from-beginning")
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == b"first\n"
    reader.stdout.close()
    cli("produce", topic, stdin=b"second\n")
    assert reader.wait(90) == 0
    assert reader.stderr.read().startswith(b"1 record, 6 B, ")


def test_the_port_is_in_use(broker: EmbeddedBroker, tmp_path: Path) -> None:
    failed = start(broker, "serve", "-d", str(tmp_path / "data"), "-l", f"PLAINTEXT://{broker.bootstrap_servers}")
    out, errors = failed.communicate(timeout=90)
    assert (failed.returncode, out) == (1, b"")
    assert b"the port is in use. Stop the process that uses it, or choose another port with --listener" in errors


def test_the_data_directory_is_in_use(broker: EmbeddedBroker) -> None:
    failed = start(broker, "serve", "-d", broker.data_dir, "-l", "PLAINTEXT://127.0.0.1:0")
    _, errors = failed.communicate(timeout=90)
    assert failed.returncode == 1
    assert b"is locked: another broker uses this data directory" in errors
    assert errors.count(b"error: ") == 1


def test_invalid_setting_prevents_the_start(broker: EmbeddedBroker, tmp_path: Path) -> None:
    failed = start(broker, "serve", "-d", str(tmp_path / "data"), "-c", "num.partitions=many")
    _, errors = failed.communicate(timeout=90)
    assert failed.returncode == 2
    assert errors.startswith(b"error: Invalid value many for configuration num.partitions")


@pytest.mark.timeout(180)
def test_top_draws_on_a_terminal_until_q(broker: EmbeddedBroker) -> None:
    terminal, end = pty.openpty()
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": broker.bootstrap_servers, "TERM": "xterm", "COLUMNS": "120"}
    process = start_child(
        [*BARNABAS, "top", "--interval", "0.5"], stdin=end, stdout=end, stderr=end, env={**environment, "LINES": "40"}
    )
    os.close(end)
    seen = b""
    while b"1 of 1 brokers up" not in seen:
        assert select.select([terminal], [], [], 90)[0], seen
        seen += os.read(terminal, 65_536)
    os.write(terminal, b"q")
    with contextlib.suppress(OSError):  # the terminal has no other end any more
        while more := os.read(terminal, 65_536):
            seen += more
    assert process.wait(90) == 0
    os.close(terminal)
    assert b"TOPIC" in seen
    assert b"Traceback" not in seen
