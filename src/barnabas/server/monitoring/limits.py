"""Table: how many series a page of metrics has at most, so that neither a scrape nor Prometheus drowns in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.core.telemetry.exposition import Exposition, label_text

TOPICS_MAX: Final = 5_000
"""Topics with series of their own. The sums over all topics always count every topic."""
PARTITIONS_MAX: Final = 20_000
"""Partitions with series of their own."""
GROUP_PARTITIONS_MAX: Final = 20_000
"""Partitions of groups with a lag."""
PARTITIONS_AT_ONCE: Final = 100
"""Partitions that are read before other tasks of the event loop may run: about a millisecond."""


class LeftOut:
    """Counts the series that the last page has left out, by the kind of their subject."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {"topic": 0, "partition": 0, "group": 0, "client": 0, "mirror": 0}

    def set(self, kind: str, count: int) -> None:
        """The page has left out `count` subjects of this kind."""
        self._counts[kind] = count

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples. Register this collector last."""
        family = page.family("barnabas_metrics_left_out")
        for kind, count in self._counts.items():
            family.add(count, label_text(kind=kind))
        yield
