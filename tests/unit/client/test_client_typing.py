"""The clients' types as a user's type checker sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

SAMPLE = Path(__file__).with_name("typing_sample.py")


def test_mypy_strict_finds_nothing_in_a_users_file() -> None:
    api = pytest.importorskip("mypy.api")
    out, problems, status = api.run(["--strict", "--config-file", "pyproject.toml", str(SAMPLE)])
    assert status == 0, out + problems


def test_mypy_finds_what_is_wrong(tmp_path: Path) -> None:
    """The types are not all Any: these mistakes are seen."""
    api = pytest.importorskip("mypy.api")
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
