"""Table: every metric that a node serves. docs/METRICS.md is generated from it.

`METRICS` finds a row by the name in Strimzi's family, which is also the name by which the code adds values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.core.telemetry.table.kafka_rows import (
    CONTROLLER_ROWS,
    KAFKA_ROWS,
    REMOTE_ROWS,
    REPLICA_ROWS,
    REQUEST_ROWS,
    TOPIC_ROWS,
)
from barnabas.core.telemetry.table.own_rows import (
    CLIENT_ROWS,
    LAG_ROWS,
    LINK_ROWS,
    NETWORK_ROWS,
    NODE_ROWS,
    OWN_ROWS,
    STORAGE_ROWS,
)
from barnabas.core.telemetry.table.row import MetricKind, MetricRow, NameFamily

__all__ = ["METRICS", "SECTIONS", "MetricKind", "MetricRow", "NameFamily"]

SECTIONS: Final[Mapping[str, tuple[MetricRow, ...]]] = {
    "Replicas and logs": REPLICA_ROWS,
    "Topics": TOPIC_ROWS,
    "Tiered storage": REMOTE_ROWS,
    "Requests and connections": REQUEST_ROWS,
    "Controller, quorum and groups": CONTROLLER_ROWS,
    "Consumer lag, transactions, share groups": LAG_ROWS,
    "Cluster links": LINK_ROWS,
    "Network": NETWORK_ROWS,
    "Clients": CLIENT_ROWS,
    "Storage": STORAGE_ROWS,
    "Node": NODE_ROWS,
}
METRICS: Final[Mapping[str, MetricRow]] = {row.name: row for row in (*KAFKA_ROWS, *OWN_ROWS)}
assert len(METRICS) == len(KAFKA_ROWS) + len(OWN_ROWS), "a name is in the table twice"
