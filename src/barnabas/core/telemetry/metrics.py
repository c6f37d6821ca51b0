"""Value: counters, gauges and histograms, updated by the code that they measure and read by the renderer.

A metric is an object with a number. Only the event loop writes it, so there are no locks, and counting costs one
attribute addition. Names follow Prometheus: `barnabas_<what>_<unit>` with `_total` for counters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.core.telemetry.exposition import label_pairs

if TYPE_CHECKING:
    from barnabas.core.telemetry.exposition import Collector, Family

Labels = tuple[tuple[str, str], ...]

LATENCY_BUCKETS_MS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


class Counter:
    """A number that only grows. Call `add`, or on a hot path write `counter.value += n`."""

    __slots__ = ("value",)
    kind: Final = "counter"

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount

    def write(self, family: Family, labels: Labels) -> None:
        """Add the sample to a page."""
        family.add(self.value, label_pairs(labels))


class Gauge:
    """A number that can rise and fall: set by `set`, or computed by the function `read` when the value is read."""

    __slots__ = ("_read", "_value")
    kind: Final = "gauge"

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._value: float = 0

    @property
    def value(self) -> float:
        return self._value if self._read is None else self._read()

    def set(self, value: float) -> None:
        self._value = value

    def write(self, family: Family, labels: Labels) -> None:
        """Add the sample to a page."""
        family.add(self.value, label_pairs(labels))


class Histogram:
    """Observations counted in fixed buckets. The last entry of `counts` is for values above all `bounds`."""

    __slots__ = ("bounds", "counts", "sum")
    kind: Final = "histogram"

    def __init__(self, bounds: Sequence[float] = LATENCY_BUCKETS_MS) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def write(self, family: Family, labels: Labels) -> None:
        """Add the samples to a page: cumulative counts, the sum and the count."""
        name, lines, cumulative = family.name, family.lines, 0
        start = label_pairs(labels)[:-1] + "," if labels else "{"
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            cumulative += count
            le = bound if isinstance(bound, str) else f"{bound:g}"
            lines.append(f'{name}_bucket{start}le="{le}"}} {cumulative}')
        text = label_pairs(labels)
        lines.append(f"{name}_sum{text} {self.sum}")
        lines.append(f"{name}_count{text} {cumulative}")

    def quantile(self, q: float) -> float:
        """An upper bound of the q-quantile: the bound of the bucket it lies in (infinity above the last bound)."""
        remaining = q * self.count
        for bound, count in zip(self.bounds, self.counts, strict=False):
            remaining -= count
            if remaining <= 0:
                return bound
        return float("inf")


Metric = Counter | Gauge | Histogram
M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """The registry of all metrics by name and labels. The same name and labels return the same object."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, dict[Labels, Metric]]] = {}
        self.collectors: list[Collector] = []
        """Each adds samples to a page of metrics that is being built."""
        self.attached: dict[str, Any] = {}
        """Objects that measure for this registry, by name, so that two parts of a node can share one."""

    def counter(self, name: str, help_text: str = "", **labels: str) -> Counter:
        return self._get(name, help_text, labels, Counter, Counter)

    def gauge(self, name: str, help_text: str = "", read: Callable[[], float] | None = None, **labels: str) -> Gauge:
        return self._get(name, help_text, labels, Gauge, lambda: Gauge(read))

    def histogram(
        self, name: str, help_text: str = "", bounds: Sequence[float] = LATENCY_BUCKETS_MS, **labels: str
    ) -> Histogram:
        return self._get(name, help_text, labels, Histogram, lambda: Histogram(bounds))

    def families(self) -> Iterator[tuple[str, str, dict[Labels, Metric]]]:
        """Yield each metric name with its help text and its metrics by labels, in order of name."""
        for name in sorted(self._families):
            help_text, members = self._families[name]
            yield name, help_text, members

    def members(self, name: str) -> dict[Labels, Metric]:
        """The metrics of this name by labels; empty if there are none."""
        found = self._families.get(name)
        return {} if found is None else found[1]

    def forget(self, **labels: str) -> None:
        """Remove every metric that has all of these labels, for example those of a deleted topic."""
        wanted = set(labels.items())
        for _, members in self._families.values():
            for key in [key for key in members if wanted <= set(key)]:
                del members[key]

    def _get(self, name: str, help_text: str, labels: dict[str, str], kind: type[M], build: Callable[[], M]) -> M:
        _, members = self._families.setdefault(name, (help_text, {}))
        key: Labels = tuple(sorted(labels.items()))
        metric = members.get(key)
        if metric is None:
            metric = members[key] = build()
        if not isinstance(metric, kind):
            raise TypeError(
                f"{name} is a {type(metric).__name__}, not a {kind.__name__}: choose another name for the new metric"
            )
        return metric
