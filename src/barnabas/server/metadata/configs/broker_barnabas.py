"""Table: broker configs that Apache Kafka does not have. Their names begin with `barnabas.`."""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, OneOf
from barnabas.server.metadata.configs.rows import LOW, boolean, int_, password, string

BARNABAS_KEYS: Final[tuple[ConfigKey, ...]] = (
    boolean(
        "barnabas.accept.empty.metadata",
        False,
        "Whether the broker starts if the metadata has no topics but its data directories have partitions. If true, "
        "it renames their directories to -stray, as Apache Kafka does; if false, it refuses to start, because the "
        "metadata was probably lost.",
    ),
    boolean(
        "barnabas.broker.probe.enable",
        True,
        "Whether the controller connects to a broker that has lost its connection to the controller, and fences the "
        "broker at once if its host refuses the connection; if false, only the end of its session fences a broker.",
    ),
    int_(
        "barnabas.event.loop.held.warn.ms",
        250,
        "A log line names the request or task that held the event loop for this time without a pause.",
        InRange(1),
        importance=LOW,
    ),
    string(
        "barnabas.metrics.host.name",
        None,
        "The names, separated by commas, by which clients reach the pages of --metrics without a login, besides "
        "addresses, localhost, the name of the host and those of advertised.listeners. Requests for other names are "
        "refused, since they may come from a web page.",
        importance=LOW,
    ),
    string(
        "barnabas.metrics.names",
        "strimzi",
        "The names of Kafka's metrics on the page of metrics: strimzi, as Strimzi's exporter and most dashboards have "
        "them, or confluent, as Confluent's exporter has them.",
        OneOf(("strimzi", "confluent")),
        importance=LOW,
    ),
    string(
        "barnabas.metrics.otlp.endpoint",
        None,
        "The URL to which the node pushes its metrics in OpenTelemetry's protocol (OTLP over HTTP, protobuf), for "
        "example http://127.0.0.1:4318/v1/metrics. Without it nothing is pushed.",
        importance=LOW,
    ),
    password(
        "barnabas.metrics.otlp.headers",
        "HTTP headers of the pushes, for example Authorization=Bearer abc,X-Scope-OrgID=1.",
        importance=LOW,
    ),
    int_(
        "barnabas.metrics.otlp.interval.ms",
        60_000,
        "How often the node pushes its metrics.",
        InRange(1_000),
        importance=LOW,
    ),
)
