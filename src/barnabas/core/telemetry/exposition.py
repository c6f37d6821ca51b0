"""Codec: metrics -> the Prometheus text exposition format, version 0.0.4, built in pieces.

A registry has metrics of its own (`Metrics.counter` and so on) and collectors, which read values from the state of
their package when the page is built. A page of 10,000 partitions takes tens of milliseconds, and a node has one event
loop. `building` is therefore a generator: it yields when a piece is done, so that the caller can let other tasks run.

    page = Exposition()
    for _ in building(metrics, page):
        ...                                   # the event loop may run here
    text = page.text()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.core.telemetry.table import METRICS, MetricKind, NameFamily

if TYPE_CHECKING:
    from barnabas.core.telemetry.metrics import Metrics

_UNTYPED = "untyped"


class Family:
    """The samples of one metric. On a long loop, append lines to `lines` directly: `{name}{labels} {value}`."""

    __slots__ = ("help", "kind", "lines", "name")

    def __init__(self, name: str, kind: str, help_text: str) -> None:
        self.name = name
        self.kind = kind
        self.help = help_text
        self.lines: list[str] = []

    def add(self, value: float, labels: str = "") -> None:
        """Add one sample. `labels` comes from `label_text`."""
        self.lines.append(f"{self.name}{labels} {value}")


class Exposition:
    """One page that is being built."""

    def __init__(self, names: NameFamily = NameFamily.STRIMZI) -> None:
        self._names = names
        self._families: dict[str, Family] = {}

    def family(self, name: str) -> Family:
        """The family of this name of the table of metrics. Raises KeyError for a name that the table does not have."""
        row = METRICS[name]
        kind = row.kind.value
        if self._names is NameFamily.CONFLUENT and row.confluent and row.kind is not MetricKind.GAUGE:
            kind = _UNTYPED  # the counters of that family have no suffix, and share names with quantiles
        return self.other(row.name_in(self._names), kind, row.help)

    def other(self, name: str, kind: str, help_text: str) -> Family:
        """The family of a metric that may not be in the table."""
        found = self._families.get(name)
        if found is None:
            found = self._families[name] = Family(name, kind, help_text)
        return found

    def families(self) -> Iterator[Family]:
        """The families that have samples, in order of name."""
        for name in sorted(self._families):
            family = self._families[name]
            if family.lines:
                yield family

    def pieces(self) -> Iterator[bytes]:
        """The page in pieces, families in order of name."""
        for family in self.families():
            head = f"# HELP {family.name} {_escape_help(family.help)}\n" if family.help else ""
            body = "\n".join(family.lines)
            yield f"{head}# TYPE {family.name} {family.kind}\n{body}\n".encode()

    def text(self) -> str:
        """The whole page."""
        return b"".join(self.pieces()).decode()


Collector = Callable[[Exposition], Iterator[None]]
"""Adds samples to the page, and yields after each piece of work of about a millisecond."""


def building(metrics: Metrics, page: Exposition) -> Iterator[None]:
    """Add everything that `metrics` has to `page`. Yields after each piece."""
    for collector in metrics.collectors:
        yield from collector(page)
        yield
    for name, help_text, members in metrics.families():
        if not members:
            continue
        metric_kind = next(iter(members.values())).kind
        known = METRICS.get(name)
        family = page.other(name, metric_kind, help_text) if known is None else page.family(name)
        for labels, metric in sorted(members.items()):
            metric.write(family, labels)
        yield


def label_text(**labels: str) -> str:
    """The labels of a sample as text, for example `{topic="t"}`."""
    return label_pairs(labels.items())


def label_pairs(labels: Iterable[tuple[str, str]]) -> str:
    """As `label_text`, of pairs of names and values."""
    pairs = ",".join(f'{key}="{escape_label(value)}"' for key, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def escape_label(text: str) -> str:
    """The value of a label as Prometheus reads it."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
