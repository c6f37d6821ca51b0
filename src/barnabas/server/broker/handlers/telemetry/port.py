"""Port: what the handlers of the clients' metrics use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.server.broker.client_metrics.store import ClientMetrics
    from barnabas.server.broker.config import HasBrokerConfig


class TelemetryPort(Struct, frozen=True):
    """The metrics that clients have pushed."""

    client_metrics: ClientMetrics
    config: HasBrokerConfig
    disk: Executor
    """Runs reads that wait for a disk, off the event loop."""
