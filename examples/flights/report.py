"""Prints a table of the results, and draws a plot."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd
from rich.table import Table

mpl.use("Agg")
from matplotlib import dates as mdates
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

INK, GREY, BLUE, RED = "#1f2933", "#9aa5b1", "#2b6cb0", "#c2410c"
AIRPORTS = {"EWR": "#2b6cb0", "JFK": "#c2410c", "LGA": "#3f8f5f"}


def airlines_table(delays: pd.DataFrame) -> Table:
    """The year of each airline, sorted by mean delay, longest first."""
    year = delays.groupby("airline")[["flights", "cancelled", "departed", "delay_minutes"]].sum()
    year["mean"] = year["delay_minutes"] / year["departed"]
    year["share"] = year["cancelled"] / year["flights"]
    table = Table(title="Flights from New York City in 2013, by airline", title_style="bold", header_style="bold")
    for name, justify in (("airline", "left"), ("flights", "right"), ("cancelled", "right"), ("mean delay", "right")):
        table.add_column(name, justify=justify)
    for name, row in year.sort_values("mean", ascending=False).iterrows():
        colour = "red" if row["mean"] >= 15 else "yellow" if row["mean"] >= 10 else "green"
        table.add_row(
            str(name), f"{row['flights']:,.0f}", f"{row['share']:.1%}", f"[{colour}]{row['mean']:.1f} min[/{colour}]"
        )
    return table


def draw(delays: pd.DataFrame, in_weather: pd.DataFrame, path: Path) -> None:
    """Draw one page: the delays by day, by airline and by visibility, and the cancellations."""
    plt.rcParams.update({"font.size": 10, "axes.edgecolor": GREY, "axes.labelcolor": INK, "text.color": INK})
    plt.rcParams.update({"xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False})
    figure = plt.figure(figsize=(13, 9), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12, hspace=0.04)
    grid = figure.add_gridspec(3, 2, height_ratios=(2.2, 1, 3))
    by_day = delays.groupby("day")[["flights", "cancelled", "departed", "delay_minutes"]].sum()
    by_day.index = pd.to_datetime(by_day.index)
    top = figure.add_subplot(grid[0, :])
    _delay_of_the_year(top, by_day)
    _cancellations(figure.add_subplot(grid[1, :], sharex=top), by_day)
    _airlines(figure.add_subplot(grid[2, 0]), delays)
    _visibility(figure.add_subplot(grid[2, 1]), in_weather)
    figure.suptitle(
        f"Flights from New York City in 2013: {by_day['flights'].sum():,} flights through a topic, seen by Spark",
        fontsize=14,
        fontweight="bold",
        x=0.012,
        ha="left",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _delay_of_the_year(axes: Axes, by_day: pd.DataFrame) -> None:
    mean = by_day["delay_minutes"] / by_day["departed"]
    week = by_day["delay_minutes"].rolling(7, center=True).sum() / by_day["departed"].rolling(7, center=True).sum()
    axes.fill_between(mean.index, mean, color=BLUE, alpha=0.18, linewidth=0)
    axes.plot(week.index, week, color=BLUE, linewidth=2)
    axes.set_ylabel("minutes")
    axes.set_ylim(bottom=0)
    axes.set_title("Mean departure delay per day (area) and over seven days (line)", loc="left", fontsize=11)
    axes.tick_params(labelbottom=False)
    for day, value in mean.nlargest(3).items():
        axes.annotate(
            f"{day:%-d %b}: {value:.0f}",
            (day, value),
            xytext=(5, -2),
            textcoords="offset points",
            fontsize=9,
            color=INK,
        )


def _cancellations(axes: Axes, by_day: pd.DataFrame) -> None:
    share = 100 * by_day["cancelled"] / by_day["flights"]
    axes.bar(share.index, share, width=1.0, color=RED, linewidth=0)
    axes.set_ylabel("%")
    axes.set_title("Flights cancelled", loc="left", fontsize=11)
    axes.xaxis.set_major_locator(mdates.MonthLocator())
    axes.xaxis.set_major_formatter(mdates.DateFormatter("%b"))
    axes.set_xlim(by_day.index.min(), by_day.index.max())
    worst = share.idxmax()
    axes.annotate(
        f"{worst:%-d %b}: {share.max():.0f} %",
        (worst, share.max()),
        xytext=(6, -8),
        textcoords="offset points",
        fontsize=9,
    )


def _airlines(axes: Axes, delays: pd.DataFrame) -> None:
    year = delays.groupby("airline")[["departed", "delay_minutes"]].sum()
    mean = (year["delay_minutes"] / year["departed"]).sort_values()
    bars = axes.barh(mean.index, mean, color=BLUE, height=0.7)
    axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
    axes.set_xlabel("minutes")
    axes.set_title("Mean departure delay by airline", loc="left", fontsize=11)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _visibility(axes: Axes, in_weather: pd.DataFrame) -> None:
    bands = pd.cut(in_weather["visib"], [-0.1, 0.5, 2, 5, 9.9, 10], labels=["≤ ½", "½–2", "2–5", "5–10", "10"])
    flown = in_weather.assign(band=bands).dropna(subset=["dep_delay"])
    mean = flown.groupby(["band", "origin"], observed=True)["dep_delay"].mean().unstack()
    width = 0.26
    for i, (airport, colour) in enumerate(AIRPORTS.items()):
        at = [x + (i - 1) * width for x in range(len(mean))]
        axes.bar(at, mean[airport].astype(float), width=width * 0.92, color=colour, label=airport)
    axes.set_xticks(range(len(mean)), [str(band) for band in mean.index])
    axes.set_xlabel("miles (flights joined with the weather feed)")
    axes.set_ylabel("minutes")
    axes.set_title("Mean departure delay by visibility in that hour", loc="left", fontsize=11)
    axes.legend(frameon=False)
