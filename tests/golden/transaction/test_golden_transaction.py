"""Scripted conversations with the transaction coordinator; `--rewrite` replaces the expected output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.transaction.conversation import replay_script
from tests.golden.transaction.moves import replay_moves

HERE = Path(__file__).parent
REPLAYS = dict.fromkeys(sorted(HERE.glob("transaction_*.txt")), replay_script)
REPLAYS |= dict.fromkeys(sorted(HERE.glob("moves_*.txt")), replay_moves)


@pytest.mark.parametrize("script", REPLAYS, ids=lambda path: path.stem)
def test_conversation(script: Path, request: pytest.FixtureRequest) -> None:
    expected = script.read_text()
    happened = REPLAYS[script](expected)
    if request.config.getoption("--rewrite"):
        script.write_text(happened)
    else:
        assert happened == expected
