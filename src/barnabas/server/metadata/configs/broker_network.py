"""Table: broker configs of listeners, connections, quotas and metrics.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, ListOf, OneOf
from barnabas.server.metadata.configs.rows import BROKER, CLUSTER, HIGH, INT_MAX, LOW, class_, int_, list_, long, string

NETWORK_KEYS: Final[tuple[ConfigKey, ...]] = (
    list_(
        "advertised.listeners",
        None,
        "The addresses that clients and other brokers use to connect, if different from listeners.",
        ListOf(empty_allowed=False, nullable=True),
        importance=HIGH,
    ),
    int_(
        "background.threads",
        10,
        "Threads for background work.",
        InRange(1),
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    class_("client.quota.callback.class", None, "The class that computes the quota of a client.", importance=LOW),
    int_(
        "connection.failed.authentication.delay.ms",
        100,
        "The delay before a connection that failed to authenticate is closed.",
        InRange(0),
        importance=LOW,
    ),
    long("connections.max.idle.ms", 600_000, "How long a connection may be idle before it is closed."),
    long(
        "connections.max.reauth.ms",
        0,
        "The maximum time until the client of a SASL session must authenticate again; 0 means unlimited.",
    ),
    list_(
        "early.start.listeners",
        None,
        "Listeners that open before the authorizer is ready.",
        ListOf(nullable=True),
        importance=HIGH,
    ),
    string(
        "inter.broker.listener.name",
        None,
        "The listener for requests between brokers; if unset, security.inter.broker.protocol is used.",
    ),
    int_(
        "kafka.metrics.polling.interval.secs",
        10,
        "How often metrics are passed to custom reporters.",
        InRange(1),
        importance=LOW,
    ),
    list_(
        "kafka.metrics.reporters", (), "The classes of custom reporters of server metrics.", ListOf(), importance=LOW
    ),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as NAME:PROTOCOL pairs.",
        importance=LOW,
        update_mode=BROKER,
    ),
    list_(
        "listeners",
        ("PLAINTEXT://:9092",),
        "The listeners of the broker, as NAME://host:port entries separated by commas.",
        ListOf(empty_allowed=False),
        importance=HIGH,
        update_mode=BROKER,
    ),
    int_(
        "max.connection.creation.rate",
        INT_MAX,
        "The maximum number of connections per second that the broker accepts.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    int_(
        "max.connections",
        INT_MAX,
        "The maximum number of open connections of the broker.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    int_(
        "max.connections.per.ip",
        INT_MAX,
        "The maximum number of open connections of one address.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        "Limits that replace max.connections.per.ip for single hosts, as host:count pairs.",
        update_mode=CLUSTER,
    ),
    list_(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "The classes of metrics reporters.",
        ListOf(),
        importance=LOW,
        update_mode=CLUSTER,
    ),
    int_("metrics.num.samples", 2, "How many samples metrics are computed from.", InRange(1), importance=LOW),
    string(
        "metrics.recording.level",
        "INFO",
        "How detailed the recorded metrics are: INFO, DEBUG or TRACE.",
        importance=LOW,
    ),
    long("metrics.sample.window.ms", 30_000, "The time span of one sample of a metric.", InRange(1), importance=LOW),
    int_(
        "num.io.threads",
        8,
        "The number of threads that handle requests.",
        InRange(1),
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    int_(
        "num.network.threads",
        3,
        "The number of threads of each listener that read requests and write responses.",
        InRange(1),
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    long(
        "queued.max.request.bytes",
        -1,
        "The maximum bytes of queued requests, above which no further requests are read; -1 means unlimited.",
    ),
    int_(
        "queued.max.requests",
        500,
        "The maximum number of queued requests, above which no further requests are read.",
        InRange(1),
        importance=HIGH,
    ),
    int_("quota.window.num", 11, "The number of samples kept to measure client quotas.", InRange(1), importance=LOW),
    int_(
        "quota.window.size.seconds",
        1,
        "The length of one sample of a client quota.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "request.timeout.ms",
        30_000,
        "How long a node waits for the response to a request that it sent.",
        importance=HIGH,
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The security protocol between brokers. Ignored if inter.broker.listener.name is set.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "The maximum time that a node waits for a connection that it opens.",
    ),
    long(
        "socket.connection.setup.timeout.ms",
        10_000,
        "The initial time that a node waits for a connection that it opens.",
    ),
    int_("socket.listen.backlog.size", 50, "How many connections may wait to be accepted.", InRange(1)),
    int_(
        "socket.receive.buffer.bytes",
        102_400,
        "The receive buffer of server sockets; -1 means the default of the operating system.",
        importance=HIGH,
    ),
    int_(
        "socket.request.max.bytes",
        104_857_600,
        "The maximum size of a request; the connection of a larger request is closed.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "socket.send.buffer.bytes",
        102_400,
        "The send buffer of server sockets; -1 means the default of the operating system.",
        importance=HIGH,
    ),
    int_(
        "telemetry.max.bytes",
        1_048_576,
        "The maximum size of a metrics push of a client, after compression.",
        InRange(1),
        importance=LOW,
    ),
)
