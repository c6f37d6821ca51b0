"""Scripted conversations with the transaction coordinator; `--rewrite` accepts what happens now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.transaction.conversation import replay_script

SCRIPTS = sorted(Path(__file__).parent.glob("transaction_*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text()
    happened = replay_script(expected)
    if request.config.getoption("--rewrite"):
        script.write_text(happened)
    else:
        assert happened == expected
