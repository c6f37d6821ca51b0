"""Shell: the metrics of the mirror partitions that a broker leads, and of the links that it coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.values import MirrorReport
from barnabas.server.monitoring.limits import PARTITIONS_AT_ONCE, PARTITIONS_MAX, LeftOut

_NEW = "NEW"
"""The state of a partition whose leader has not read the stored state yet."""


class LinkMonitor:
    """Reads the mirror partitions and the links of one broker. `troubles` has, for each link that this broker
    coordinates, why its last round was not complete, or an empty text."""

    def __init__(
        self,
        reports: Callable[[], Sequence[MirrorReport]],
        troubles: Callable[[], Mapping[str, str]],
        left_out: LeftOut,
    ) -> None:
        self._reports = reports
        self._troubles = troubles
        self._left_out = left_out

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        reports = self._reports()
        for start in range(0, min(len(reports), PARTITIONS_MAX), PARTITIONS_AT_ONCE):
            for report in reports[start : start + PARTITIONS_AT_ONCE]:
                _add_lag(page, report)
            yield
        self._left_out.set("mirror", max(len(reports) - PARTITIONS_MAX, 0))
        _add_sums(page, reports)
        troubles = page.family("barnabas_link_trouble")
        for link, trouble in sorted(self._troubles().items()):
            troubles.add(int(bool(trouble)), label_text(link=link))
        yield


def _add_lag(page: Exposition, report: MirrorReport) -> None:
    """What is not known yet has no sample."""
    labels = label_text(link=report.link, topic=report.topic, partition=str(report.partition))
    if report.lag >= 0:
        page.family("barnabas_link_lag_records").add(report.lag, labels)
    if report.lag_bytes >= 0:
        page.family("barnabas_link_lag_bytes").add(report.lag_bytes, labels)
    if report.lag_ms >= 0:
        page.family("barnabas_link_lag_seconds").add(report.lag_ms / 1000, labels)


def _add_sums(page: Exposition, reports: Sequence[MirrorReport]) -> None:
    states: Counter[tuple[str, str]] = Counter()
    skipped: Counter[str] = Counter()
    for report in reports:
        states[report.link, _NEW if report.state is None else report.state.name] += 1
        skipped[report.link] += report.skipped_records
    partitions = page.family("barnabas_link_partitions")
    gaps = page.family("barnabas_link_skipped_offsets")
    for link in sorted(skipped):
        for state in (_NEW, *MirrorState.__members__):
            partitions.add(states[link, state], label_text(link=link, state=state))
        gaps.add(skipped[link], label_text(link=link))
