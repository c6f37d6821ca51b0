"""The programs and commands of docs/TESTING.md, CLIENTS.md, CLI.md, METRICS.md and tutorial/README.md, as they are
written there.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import Consumer, Producer
from barnabas.client import ConsumerSettings
from barnabas.testing.ports import free_ports
from tests.golden.pages.code_blocks import ROOT, code_blocks
from tests.progress import STANDSTILL_S
from tests.system.pages import DOCS, run_page

pytestmark = pytest.mark.system

ENVIRONMENT: Final = {
    **os.environ,
    "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


def block(page: str, section: str) -> str:
    """The only block of commands in a section."""
    kinds = ("", "indented")
    (found,) = (one.text for one in code_blocks() if (one.page, one.section) == (page, section) and one.kind in kinds)
    return found


def run(script: str, folder: Path, **variables: str) -> str:
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        text=True,
        timeout=STANDSTILL_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(command: str, folder: Path) -> Iterator[None]:
    """Runs a command that serves until it is stopped; it prints a line when it is ready."""
    with subprocess.Popen(
        ["bash", "-ec", f"exec {command}"], cwd=folder, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() != "", "the broker ended before it was ready"
            yield
        finally:
            process.terminate()
            process.wait(timeout=STANDSTILL_S)


def test_the_programs_of_testing_md() -> None:
    names: dict[str, Any] = run_page(DOCS / "TESTING.md", {}, {"now_ms": 0})
    names["test_old_orders_are_gone"]()
    assert names["report"].forbidden == ()


def test_the_programs_of_clients_md_write_each_output_once(servers: str) -> None:
    """The first program sends `hello`; the last one runs until it is stopped, so both run in a process of their own."""
    with Producer(bootstrap_servers=servers) as producer:
        for word in (b"one", b"two"):
            producer.send("orders", word).result()
    command = [sys.executable, "-m", "tests.system.pages", str(DOCS / "CLIENTS.md"), f"localhost:9092={servers}"]
    settings: ConsumerSettings = {
        "bootstrap_servers": servers,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "group_id": "reader",
    }
    with subprocess.Popen(command, env=ENVIRONMENT) as process:
        found: list[bytes | None] = []
        with Consumer(**settings) as consumer:
            consumer.subscribe(["shouted"])
            while len(found) < 3:
                assert process.poll() is None, f"the programs ended with {process.returncode}, see their output"
                found += [record.value for record in consumer.poll(1_000)]
        process.send_signal(signal.SIGINT)
        process.wait(timeout=STANDSTILL_S)
    assert sorted(word for word in found if word) == [b"HELLO", b"ONE", b"TWO"]


def test_the_contexts_of_cli_md(servers: str, tmp_path: Path) -> None:
    (tmp_path / "prod.properties").write_text("client.id=prod\n")
    script = block("docs/CLI.md", "Contexts").replace("localhost:9092", servers)
    listed = run(script, tmp_path, BARNABAS_CONFIG_DIR=str(tmp_path))
    assert "kafka1:9093" in listed
    assert servers in listed


def test_the_subscription_of_metrics_md(servers: str, tmp_path: Path) -> None:
    (script,) = (one.text for one in code_blocks() if one.page == "docs/METRICS.md")
    run(script.replace("localhost:9092", servers), tmp_path)
    tool = f"kafka-client-metrics --bootstrap-server {servers} --describe"
    assert "client_software_name=apache-kafka-java" in run(tool, tmp_path)


def test_the_broker_of_the_tutorial(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (line,) = block("docs/tutorial/README.md", "Tutorial").replace("9092", str(port)).splitlines()
    _, *words = shlex.split(line)
    with serving(shlex.join([sys.executable, "-m", "barnabas", *words]), tmp_path):
        run(f"barnabas topics list -b 127.0.0.1:{port}", tmp_path)
