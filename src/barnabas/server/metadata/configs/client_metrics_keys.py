"""Table: configs of client-metrics subscriptions (KIP-714).

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, ListOf
from barnabas.server.metadata.configs.rows import int_, list_

CLIENT_METRICS_KEYS: Final[tuple[ConfigKey, ...]] = (
    int_("interval.ms", 300_000, "How often matching clients push these metrics."),
    list_(
        "match",
        (),
        "The clients of the subscription, as attribute=regular-expression pairs; empty matches all clients.",
        ListOf(),
    ),
    list_(
        "metrics",
        (),
        "The prefixes of the names of the metrics that matching clients push; * means all, empty means none.",
        ListOf(),
    ),
)
