"""Scripted conversations between Raft machines. `--rewrite` replaces the expected output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.raft.conversation import replay_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text()
    happened = replay_script(expected)
    if request.config.getoption("--rewrite"):
        script.write_text(happened)
    else:
        assert happened == expected
