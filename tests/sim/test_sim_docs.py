"""The table of planted bugs in docs/TESTING.md equals the bugs in the code (`--rewrite` writes the table)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import planted, planted_cluster

PAGE = Path(__file__).parents[2] / "docs" / "TESTING.md"
BEGIN, END = "<!-- planted -->\n", "<!-- /planted -->\n"


def render() -> str:
    lines = ["| Planted bug | Menu | Found within |", "|---|---|---|"]
    for title, bugs in (("in a cluster", planted_cluster.PLANTED), ("in one node", planted.PLANTED)):
        lines.append(f"| *{title}* | | |")
        lines += [f"| {bug.name} | {bug.menu.value} | {_within(bug.seeds, bug.first)} |" for bug in bugs]
    return "\n".join(lines) + "\n"


def _within(seeds: int, first: int) -> str:
    return f"{seeds} seeds" + (f" from {first} on" if first else "")


def test_table_of_planted_bugs_in_docs_is_current(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    expected = before + BEGIN + render() + END + after
    if request.config.getoption("--rewrite"):
        PAGE.write_text(expected, encoding="utf-8")
    assert request.config.getoption("--rewrite") or text == expected
