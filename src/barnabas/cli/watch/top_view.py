"""Codec: the rows of `barnabas top` -> text for a terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from barnabas.cli.output import size_text
from barnabas.cli.watch.top_rows import TopRows

if TYPE_CHECKING:
    from rich.console import Group


def view(rows: TopRows, height: int, keys: str) -> Group:
    """What fills a terminal of `height` lines: a headline, the brokers, the topics, the groups, and a line of keys."""
    from rich.console import Group
    from rich.text import Text

    if rows.problem:
        return Group(Text(rows.problem, style="red"), Text(keys, style="dim"))
    parts: list[Any] = [
        Text(headline(rows), style="red" if rows.offline else "yellow" if rows.under_replicated else "")
    ]
    free = max(height - 10, 6)  # without the headline, the keys, three lines of columns and those between the tables
    brokers = min(len(rows.brokers), max(free // 4, 2))
    groups = min(len(rows.groups), max((free - brokers) // 2, 2))
    topics = max(free - brokers - groups, 2)
    for (columns, cells), most in zip(tables(rows), (brokers, topics, groups), strict=True):
        parts += ["", _table(columns, cells[:most], len(cells) - most)]
    return Group(*parts, "", Text(keys, style="dim"))


def _table(columns: list[str], cells: list[tuple[str, ...]], more: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold", box=None, pad_edge=False, expand=True)
    for place, column in enumerate(columns):
        title = column.rstrip(">") + (f" (and {more} more)" if place == 0 and more > 0 else "")
        table.add_column(
            title, justify="right" if column.endswith(">") else "left", no_wrap=True, overflow="ellipsis",
            ratio=3 if place == 0 else 2,
        )  # fmt: skip
    for row in cells:
        table.add_row(*map(Text, row), style="red" if row[-1] in ("down", "no answer", "offline") else "")
    return table


def headline(rows: TopRows) -> str:
    """One line about the whole cluster."""
    up = sum(broker.state == "up" for broker in rows.brokers)
    at = datetime.fromtimestamp(rows.at_ms / 1000).astimezone().strftime("%H:%M:%S")
    return (
        f"{at}  cluster {rows.cluster_id}: {up} of {len(rows.brokers)} brokers up, {_number(rows.rate)} records/s, "
        f"{rows.partitions:,} partitions, {rows.under_replicated} under-replicated, {rows.offline} offline"
    )


def tables(rows: TopRows) -> list[tuple[list[str], list[tuple[str, ...]]]]:
    """The columns and cells of the tables of brokers, topics and groups. The last column is a state in words."""
    return [
        (
            ["BROKER", "ADDRESS", "LEADERS>", "REPLICAS>", "SIZE>", "FREE>", "STATE"],
            [
                (str(b.broker), b.address, f"{b.leaders:,}", f"{b.replicas:,}", size_text(b.bytes),
                 "-" if b.free is None else size_text(b.free), b.state)
                for b in rows.brokers
            ],
        ),
        (
            ["TOPIC", "RECORDS/S>", "SIZE>", "PARTITIONS>", "STATE"],
            [
                (t.topic, _number(t.rate), size_text(t.bytes), f"{t.partitions:,}",
                 "offline" if t.offline else "under-replicated" if t.under_replicated else "")
                for t in rows.topics
            ],
        ),
        (
            ["GROUP", "LAG>", "CHANGE/S>", "CATCHES UP IN>", "STATE"],
            [
                (g.group, "-" if g.lag is None else f"{g.lag:,}", _signed(g.lag_change), _duration(g.catches_up_s),
                 g.state)
                for g in rows.groups
            ],
        ),
    ]  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.1f}" if 0 < value < 100 else f"{value:,.0f}"


def _signed(value: float | None) -> str:
    if value is None:
        return "-"
    return ("+" if value > 0 else "-" if value < 0 else "") + _number(abs(value))


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"
