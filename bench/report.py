"""Value: what was measured, and the table it becomes, on a terminal or between two markers of a Markdown file."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

SECTION = "measured"


@dataclass(frozen=True)
class Figure:
    """A row of the table. `better` is +1 where more is better, else -1; `place` tells rows of one name apart."""

    name: str
    unit: str
    better: int
    place: int = 0


Measured = dict[Figure, float]


@dataclass(frozen=True)
class Sheet:
    """One table: a title, a heading whose first column names the row, and the rows."""

    title: str
    heading: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def render(self) -> Table:
        table = Table(title=self.title)
        for index, column in enumerate(self.heading):
            table.add_column(column, justify="right" if index else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        lines = ["| " + " | ".join(self.heading) + " |", "|---" + "|---:" * (len(self.heading) - 1) + "|"]
        lines += ["| " + " | ".join(cell.strip() for cell in row) + " |" for row in self.rows]
        return f"{self.title}\n\n" + "\n".join(lines) + "\n"


def compare(title: str, names: Sequence[str], ours: list[Measured], peers: list[Measured]) -> Sheet:
    """Medians over the rounds; with a peer, the median of the rounds' ratios (above 1: ours is better)."""
    rows: list[tuple[str, ...]] = []
    for figure in ours[0]:
        mine = [round_[figure] for round_ in ours]
        row = [figure.name, f"{number(statistics.median(mine))} {figure.unit}"]
        if peers:
            theirs = [round_[figure] for round_ in peers]
            ratios = [ratio(figure, a, b) for a, b in zip(mine, theirs, strict=True)]
            row += [f"{number(statistics.median(theirs))} {figure.unit}", f"{statistics.median(ratios):.2f}x"]
        rows.append(tuple(row))
    return Sheet(title, ("", *names, "better by") if peers else ("", names[0]), rows)


def ratio(figure: Figure, ours: float, peer: float) -> float:
    """How many times better ours is; below 1 means worse."""
    if not ours or not peer:
        return float("nan")
    return ours / peer if figure.better > 0 else peer / ours


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def write(path: Path, sheets: Sequence[Sheet], section: str = SECTION) -> None:
    """Replaces what stands between the section's markers and nothing else; a file without them gets them at its end."""
    begin, end = f"<!-- {section}: begin -->", f"<!-- {section}: end -->"
    text = path.read_text() if path.exists() else ""
    tables = f"{begin}\n\n" + "\n".join(sheet.markdown() for sheet in sheets) + f"\n{end}"
    before, found, rest = text.partition(begin)
    if not found:
        path.write_text(f"{text.rstrip()}\n\n{tables}\n".lstrip())
        return
    _, closed, after = rest.partition(end)
    if not closed:
        raise SystemExit(f"{path} has the marker {begin} but not {end}; nothing was written")
    path.write_text(before + tables + after)
