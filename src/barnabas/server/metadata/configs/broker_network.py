"""Table: broker configs of listeners, connections, quotas and metrics.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the sentences are ours.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, ListOf, OneOf
from barnabas.server.metadata.configs.rows import BROKER, CLUSTER, HIGH, INT_MAX, LOW, class_, int_, list_, long, string

NETWORK_KEYS: Final[tuple[ConfigKey, ...]] = (
    list_(
        "advertised.listeners",
        None,
        "The addresses given to clients and other brokers, where they differ from listeners.",
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
    class_("client.quota.callback.class", None, "Class that decides the quota of a client.", importance=LOW),
    int_(
        "connection.failed.authentication.delay.ms",
        100,
        "How long the close of a connection that failed to authenticate is held back.",
        InRange(0),
        importance=LOW,
    ),
    long("connections.max.idle.ms", 600_000, "How long a connection may be idle before it is closed."),
    long(
        "connections.max.reauth.ms",
        0,
        "How long a SASL session lasts before the client must authenticate again; 0 is without limit.",
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
        "The listener brokers use among themselves; when unset, security.inter.broker.protocol decides.",
    ),
    int_(
        "kafka.metrics.polling.interval.secs",
        10,
        "How often custom reporters are told of metrics.",
        InRange(1),
        importance=LOW,
    ),
    list_("kafka.metrics.reporters", (), "Classes of custom reporters of server metrics.", ListOf(), importance=LOW),
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
        "Where the broker listens, as NAME://host:port entries separated by commas.",
        ListOf(empty_allowed=False),
        importance=HIGH,
        update_mode=BROKER,
    ),
    int_(
        "max.connection.creation.rate",
        INT_MAX,
        "How many connections per second the broker accepts.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    int_("max.connections", INT_MAX, "How many connections the broker keeps open.", InRange(0), update_mode=CLUSTER),
    int_(
        "max.connections.per.ip",
        INT_MAX,
        "How many connections one address may have open.",
        InRange(0),
        update_mode=CLUSTER,
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        "Exceptions from max.connections.per.ip, as host:count pairs.",
        update_mode=CLUSTER,
    ),
    list_(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Classes that are told of metrics.",
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
    int_("num.io.threads", 8, "How many threads work on requests.", InRange(1), importance=HIGH, update_mode=CLUSTER),
    int_(
        "num.network.threads",
        3,
        "How many threads of each listener move bytes between sockets and the request queue.",
        InRange(1),
        importance=HIGH,
        update_mode=CLUSTER,
    ),
    long(
        "queued.max.request.bytes",
        -1,
        "How many bytes of requests may wait before the network stops reading more; -1 does not limit it.",
    ),
    int_(
        "queued.max.requests",
        500,
        "How many requests may wait before the network stops reading more.",
        InRange(1),
        importance=HIGH,
    ),
    int_("quota.window.num", 11, "How many samples are kept to measure client quotas.", InRange(1), importance=LOW),
    int_(
        "quota.window.size.seconds",
        1,
        "The length of one sample of a client quota.",
        InRange(1),
        importance=LOW,
    ),
    int_(
        "request.timeout.ms", 30_000, "How long a node waits for the answer to a request of its own.", importance=HIGH
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The security protocol brokers use among themselves, unless inter.broker.listener.name is set.",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    ),
    long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "The longest a node waits for a connection of its own to be established.",
    ),
    long(
        "socket.connection.setup.timeout.ms",
        10_000,
        "How long a node first waits for a connection of its own to be established.",
    ),
    int_("socket.listen.backlog.size", 50, "How many connections may wait to be accepted.", InRange(1)),
    int_(
        "socket.receive.buffer.bytes",
        102_400,
        "The receive buffer of server sockets; -1 leaves it to the operating system.",
        importance=HIGH,
    ),
    int_(
        "socket.request.max.bytes",
        104_857_600,
        "The largest request; a larger one closes its connection.",
        InRange(1),
        importance=HIGH,
    ),
    int_(
        "socket.send.buffer.bytes",
        102_400,
        "The send buffer of server sockets; -1 leaves it to the operating system.",
        importance=HIGH,
    ),
    int_(
        "telemetry.max.bytes",
        1_048_576,
        "The largest metrics push taken from a client, measured after compression.",
        InRange(1),
        importance=LOW,
    ),
)
