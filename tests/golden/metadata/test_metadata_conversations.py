"""Scripted conversations with the controller; `--rewrite` (or BARNABAS_REWRITE=1) accepts what happens now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.golden.metadata.conversation import play

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text(encoding="utf-8")
    actual = play(expected)
    if request.config.getoption("--rewrite", default=False) or os.environ.get("BARNABAS_REWRITE"):
        script.write_text(actual, encoding="utf-8")
        expected = actual
    assert actual == expected


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 5
