"""Codec: the outcomes of tests/golden/positions -> docs/reference/positions.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

OUTCOMES: Final = Path(__file__).parents[1] / "positions" / "positions.txt"
_SHOWN: Final = 240
_ANEW: Final = "The query starts anew, since failOnDataLoss=false, "


def render_positions() -> str:
    """A table for each kind of position: what became of the thing, and what a query does then."""
    lines: list[str] = []
    shown = ""
    for position, event, by_default, otherwise in _cases():
        if position != shown:
            other = "After `repair --apply-again`" if "ledger" in position else "With `failOnDataLoss=false`"
            lines += ["", f"## {position[0].upper()}{position[1:]}", "", f"| | By default | {other} |", "|---|---|---|"]
            shown = position
        lines.append(f"| {event} | {_short(by_default)} | {_short(otherwise) if otherwise else 'the same'} |")
    return "\n".join(lines[1:]) + "\n"


def _cases() -> Iterator[tuple[str, str, str, str]]:
    for block in re.split(r"\n(?! )", OUTCOMES.read_text(encoding="utf-8").strip()):
        head, by_default, *otherwise = block.split("\n")
        position, _, event = head.partition(" | ")
        yield position, event, by_default.strip(), otherwise[0].strip().removeprefix("or: ") if otherwise else ""


def _short(outcome: str) -> str:
    """An outcome without what to do about it."""
    if _ANEW in outcome:
        return f"starts anew, {outcome.partition(_ANEW)[2]}"
    error, colon, text = outcome.partition(": ")
    stops = bool(colon) and error.endswith("Error")
    text = text if stops else outcome
    stops = stops or text.startswith("the schema ")
    text = re.split(r"\. (?=[A-Z])|: (?=connect |stop |choose )", text)[0]
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return f"stops: {text}".replace("|", "\\|") if stops else text.replace("|", "\\|")
