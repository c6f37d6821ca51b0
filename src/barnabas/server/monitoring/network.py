"""Shell: the metrics of connections and of the memory of requests, under Kafka's names.

The transport counts under names of its own (`barnabas_net_...`); this module shows some of them a second time. A node
has one event loop in place of Kafka's network threads, so the label `networkProcessor` is always 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.core.telemetry import Histogram, Metrics
from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.protocol.transport.limits import RequestBudget

_PREFIX: Final = "kafka_server_socket_server_metrics_"
_SAME: Final = (
    ("connection_count", "barnabas_net_connections"),
    ("connection_creation_total", "barnabas_net_accepted_connections_total"),
    ("successful_authentication_total", "barnabas_net_authentications_total"),
    ("failed_authentication_total", "barnabas_net_failed_authentications_total"),
)


class NetworkMonitor:
    """Reads what the listeners of a broker have counted."""

    def __init__(self, metrics: Metrics, budget: RequestBudget) -> None:
        self._metrics = metrics
        self._budget = budget

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        for name, counted in _SAME:
            family = page.family(_PREFIX + name)
            for labels, metric in sorted(self._metrics.members(counted).items()):
                if not isinstance(metric, Histogram):
                    family.add(metric.value, label_text(listener=dict(labels)["listener"], networkProcessor="0"))
        expired = self._metrics.members("barnabas_net_expired_sessions_total").values()
        killed = sum(metric.value for metric in expired if not isinstance(metric, Histogram))
        page.family("kafka_network_socketserver_expiredconnectionskilledcount").add(killed)
        acls = self._metrics.members("barnabas_authorizer_acls").values()
        for metric in acls:
            if not isinstance(metric, Histogram):
                page.family("kafka_server_authorizer_metrics_acls_total_count").add(metric.value)
        budget = self._budget
        page.family("kafka_network_requestchannel_requestqueuesize").add(budget.requests)
        page.family("kafka_network_socketserver_memorypoolused").add(budget.bytes)
        page.family("kafka_network_socketserver_memorypoolavailable").add(budget.free_bytes)
        page.family("barnabas_net_unsent_bytes").add(budget.unsent)
        yield
