"""Draws the picture: the rows in both databases over time, and what the report says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from examples.shop.databases import COUNTRIES, STATES
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

INK, GREY, BLUE, RED = "#1f2933", "#9aa5b1", "#2b6cb0", "#c2410c"
SHADES = {"new": "#bcd3ea", "paid": "#6b9bd1", "shipped": "#2b6cb0"}


def draw(
    samples: Sequence[tuple[float, int, int]],
    kills: Sequence[tuple[float, str]],
    rows: Mapping[int, tuple[Any, ...]],
    path: Path,
) -> None:
    """`samples` has seconds, orders and rows of the report; `rows` the report."""
    plt.rcParams.update({"font.size": 10, "axes.edgecolor": GREY, "axes.labelcolor": INK, "text.color": INK})
    plt.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False})
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 7), layout="constrained", height_ratios=(3, 2))
    figure.get_layout_engine().set(h_pad=0.12)
    _rows_over_time(top, samples, kills)
    _money(bottom, rows)
    title = f"{len(rows):,} orders of PostgreSQL, joined with customers of MariaDB; {len(kills)} times kill -9"
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.012, ha="left")
    figure.savefig(path, dpi=90)
    plt.close(figure)


def _rows_over_time(axes: Axes, samples: Sequence[tuple[float, int, int]], kills: Sequence[tuple[float, str]]) -> None:
    seconds = [one[0] for one in samples]
    axes.plot(seconds, [one[1] for one in samples], color=GREY, linewidth=2, label="orders in PostgreSQL")
    axes.plot(seconds, [one[2] for one in samples], color=BLUE, linewidth=2, label="rows of the report in MariaDB")
    axes.set_ylim(bottom=0)
    for when, name in kills:
        axes.axvline(when, color=RED, linewidth=1, linestyle=":")
        axes.text(when, axes.get_ylim()[1], f" {name}", color=RED, fontsize=9, va="top", rotation=90, ha="right")
    axes.set_xlabel("seconds")
    axes.set_ylabel("rows")
    axes.legend(frameon=False, loc="lower right")


def _money(axes: Axes, rows: Mapping[int, tuple[Any, ...]]) -> None:
    sums: Counter[tuple[str, str]] = Counter()
    for _, country, cents, state in rows.values():
        sums[country, state] += cents
    bottom = [0.0] * len(COUNTRIES)
    for state in STATES:
        height = [sums[country, state] / 100_000 for country in COUNTRIES]
        axes.bar(COUNTRIES, height, bottom=bottom, color=SHADES[state], width=0.65, label=state)
        bottom = [low + high for low, high in zip(bottom, height, strict=True)]
    axes.set_ylim(top=1.25 * max(1.0, *bottom))
    axes.set_ylabel("thousand euros")
    axes.set_title("Orders by the country of their customer", loc="left", fontsize=11)
    axes.legend(frameon=False, ncols=3, fontsize=9, loc="upper right")
