"""The table of planted bugs in docs/TESTING.md equals the bugs in the code (`--rewrite` writes the table)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sim import planted, planted_clients, planted_cluster, planted_links

PlantedBug = planted.Planted | planted_clients.Planted | planted_cluster.Planted | planted_links.Planted
PAGE = Path(__file__).parents[2] / "docs" / "TESTING.md"
BEGIN, END = "<!-- planted -->\n", "<!-- /planted -->\n"


def render() -> str:
    lines = ["| Planted bug | Menu | Found within |", "|---|---|---|"]
    groups: tuple[tuple[str, Sequence[PlantedBug]], ...] = (
        ("in a cluster", planted_cluster.PLANTED),
        ("between two clusters with links", planted_links.PLANTED),
        ("in one node", planted.PLANTED),
        ("in the clients of one node", planted_clients.PLANTED),
    )
    for title, bugs in groups:
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
