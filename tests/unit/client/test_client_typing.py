"""The clients' types as a user's type checker sees them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from mypy import api

SAMPLE = Path(__file__).with_name("typing_sample.py")


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


def test_pyright_strict_finds_nothing_but_what_pyarrow_leaves_unknown(tmp_path: Path) -> None:
    """pyarrow has no types; in a strict checker's eyes its RecordBatch is unknown, and nothing else is."""
    sample = tmp_path / "sample.py"
    sample.write_text(SAMPLE.read_text())
    source = Path(__file__).parents[3] / "src"
    config = {
        "include": ["sample.py"],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(source)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "basedpyright",  # pyright; its wheel contains the JavaScript runtime that pyright needs
        "-p",
        str(tmp_path),
        "--pythonpath",
        sys.executable,
        "--outputjson",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    lines = sample.read_text().splitlines()
    unexpected = [
        found
        for found in report["generalDiagnostics"]
        if not found.get("rule", "").startswith("reportUnknown")
        or not any(word in lines[found["range"]["start"]["line"]] for word in (".arrow(", "batch"))
    ]
    assert unexpected == []
