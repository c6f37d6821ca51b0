"""The clients' types as a user's type checker sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from mypy import api

SAMPLE = Path(__file__).with_name("typing_sample.py")
WRONG_SETTINGS = """\
from barnabas import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer
from barnabas import AsyncShareConsumer, Consumer, Producer, ShareConsumer
from barnabas.client import ProducerSettings
from barnabas.registry import AsyncRegistryClient, RegistryClient
Producer(bootstrap_servers="a:1", linger_mss=5)
Producer(bootstrap_servers="a:1", linger_ms="5")
Producer(acks="most")
Producer(group_id="g")
Producer(value_serializer=7)
AsyncProducer(enable_idempotence="true")
Consumer(group_idd="g")
Consumer(isolation_level="committed")
AsyncConsumer(max_poll_records=None)
AsyncConsumer(bootstrap_servers=9092)
ShareConsumer(share_acquire_mode=1)
AsyncShareConsumer(on_acknowledge=print)
Admin(bootstrap_server="a:1")
AsyncAdmin(request_timeout_ms=1.5)
RegistryClient("http://r", timeout="1s")
AsyncRegistryClient("http://r", basic_auth="user:password")
settings: ProducerSettings = {"linger_ms": 5, "acks": "none"}
"""
FIRST_WRONG_LINE = 5


def test_mypy_strict_finds_nothing_in_a_users_file() -> None:
    out, problems, status = api.run(["--strict", "--config-file", "pyproject.toml", str(SAMPLE)])
    assert status == 0, out + problems


def test_mypy_finds_what_is_wrong(tmp_path: Path) -> None:
    """The types are not all Any: these mistakes are seen."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from barnabas import Consumer, Producer\n"
        "def f(producer: Producer, consumer: Consumer) -> None:\n"
        "    producer.send(7)\n"
        "    text: str = producer.send('t').result()\n"
        "    consumer.poll(timeout='1s')\n"
        "    number: str = consumer.poll(1)[0].offset\n"
    )
    out, _, status = api.run(["--strict", "--config-file", "pyproject.toml", str(wrong)])
    assert status == 1
    assert [line for line in (3, 4, 5, 6) if f"wrong.py:{line}:" not in out] == [], out


def pyright(folder: Path, text: str) -> list[dict[str, Any]]:
    """What pyright finds in a file of a user, in strict mode."""
    (folder / "sample.py").write_text(text)
    config = {
        "include": ["sample.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(Path(__file__).parents[3] / "src")],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    # basedpyright is pyright; its wheel contains the JavaScript runtime that pyright needs.
    command = [sys.executable, "-m", "basedpyright", "-p", str(folder), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    found: list[dict[str, Any]] = report["generalDiagnostics"]
    return found


def test_pyright_refuses_wrong_names_and_values_of_settings(tmp_path: Path) -> None:
    lines = range(FIRST_WRONG_LINE, len(WRONG_SETTINGS.splitlines()) + 1)
    assert {found["range"]["start"]["line"] + 1 for found in pyright(tmp_path, WRONG_SETTINGS)} == set(lines)


def test_pyright_strict_finds_nothing_but_what_pyarrow_leaves_unknown(tmp_path: Path) -> None:
    """pyarrow has no types; in a strict checker's eyes its RecordBatch is unknown, and nothing else is."""
    lines = SAMPLE.read_text().splitlines()
    unexpected = [
        found
        for found in pyright(tmp_path, SAMPLE.read_text())
        if not found.get("rule", "").startswith("reportUnknown")
        or not any(word in lines[found["range"]["start"]["line"]] for word in (".arrow(", "batch"))
    ]
    assert unexpected == []
