"""Scripted conversations with the REST API (`--rewrite` writes the expected output)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.registry.conversation import replay_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    text = script.read_text(encoding="utf-8")
    happened = replay_script(text)
    if request.config.getoption("--rewrite"):
        script.write_text(happened, encoding="utf-8")
    else:
        assert happened == text
