"""Shell: the metrics of the most active clients and partitions. `broker/client_usage/series.py` chooses whose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.protocol.wire.messages.describe_clients import ClientView
from barnabas.server.broker.client_usage.series import Sums
from barnabas.server.broker.client_usage.tables import ClientUsage

_OF_CLIENTS: Final = (
    ("received_bytes", 0, 0),
    ("sent_bytes", 1, 0),
    ("requests", 2, 0),
    ("loop_seconds", 3, 6),
    ("records", 4, 0),
)
"""The names of the metrics, the places of their amounts, and the decimals."""
_OF_PARTITIONS: Final = (("bytes_in", 0, 0), ("bytes_out", 1, 0), ("messages_in", 4, 0))


class ClientMonitor:
    """Reads what the clients of one broker have used."""

    def __init__(self, clients: ClientUsage, now: Callable[[], float]) -> None:
        """`now` returns the time of the event loop's clock."""
        self._clients = clients
        self._now = now

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        now = self._now()
        self._clients.collect(now)
        for view, series in self._clients.series.items():
            entries = self._clients.table(view).most_active(now)
            series.choose(((entry.key, entry.weight(now)) for entry in entries if entry.key is not None), now)
            for name, sums in ((None, series.others), *series.by_name.items()):
                if view is ClientView.PARTITION:
                    _add(page, "barnabas_partition_", _OF_PARTITIONS, sums, _partition_labels(name))
                else:
                    text = label_text(by=view.name.lower(), name=str(name or ""))
                    _add(page, "barnabas_client_", _OF_CLIENTS, sums, text)
            yield


def _partition_labels(name: object) -> str:
    if not isinstance(name, TopicPartition):
        return label_text(topic="", partition="")
    return label_text(topic=name.topic, partition=str(name.partition))


def _add(page: Exposition, prefix: str, metrics: tuple[tuple[str, int, int], ...], sums: Sums, labels: str) -> None:
    for name, place, decimals in metrics:
        value = sums.amounts[place]
        page.family(f"{prefix}{name}_total").add(round(value, decimals) if decimals else int(value), labels)
