"""Table: configs that other Kafka clients have and these clients have not.

A mapping of configs is often shared with a program in another language, so that these names are accepted (a log line
names them) where nothing is lost without them. Where the user would miss what the config does, the table names
the config or argument of these clients that does it, and the client raises ConfigError with that text.
"""

from __future__ import annotations

from typing import Final

JAVA: Final = (
    "ssl.protocol", "ssl.provider", "ssl.cipher.suites",
    "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
    "ssl.engine.factory.class", "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor", "sasl.client.callback.handler.class",
    "sasl.login.class", "key.serializer", "value.serializer", "key.deserializer", "value.deserializer",
    "interceptor.classes", "partitioner.class", "metric.reporters", "metrics.num.samples", "metrics.recording.level",
    "metrics.sample.window.ms", "auto.include.jmx.reporter", "enable.metrics.push", "config.providers",
    "security.providers", "internal.throw.on.fetch.stable.offset.unsupported", "internal.leave.group.on.close",
    "internal.auto.downgrade.txn.commit",
)  # fmt: skip
"""Configs of the Java clients: class names, JMX, Java's key stores. Serializers and listeners are objects here."""

LIBRDKAFKA: Final = (
    "api.version.fallback.ms", "api.version.request",
    "api.version.request.timeout.ms", "broker.address.family", "broker.address.ttl",
    "broker.version.fallback", "builtin.features", "client.software.name", "client.software.version",
    "consume.callback.max.messages", "coordinator.query.interval.ms", "debug",
    "default.topic.config", "delivery.report.only.error",
    "enable.gapless.guarantee", "enable.random.seed",
    "enable.sparse.connections", "enable.ssl.certificate.verification", "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms", "group.protocol.type", "internal.termination.signal", "log.connection.close",
    "log.queue", "log.thread.name", "log_level", "metadata.request.timeout.ms",
    "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms", "open_cb", "plugin.library.paths",
    "queue.buffering.backpressure.threshold", "queue.buffering.max.messages", "queued.max.messages.kbytes",
    "queued.min.messages", "queuing.strategy", "receive.message.max.bytes", "retry.backoff.jitter.ms",
    "socket.blocking.max.ms", "socket.keepalive.enable",
    "socket.max.fails", "socket.nagle.disable", "ssl.certificate.verify_cb",
    "ssl.curves.list", "ssl.engine.id", "ssl.engine.location", "ssl.providers", "ssl.sigalgs.list",
    "statistics.interval.ms", "sticky.partitioning.linger.ms", "topic.blacklist", "topic.metadata.propagation.max.ms",
    "topic.metadata.refresh.fast.cnt", "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.sparse",
)  # fmt: skip
"""Configs of librdkafka and confluent-kafka: its queues, threads, sockets and version negotiation."""

PREFIXES: Final = (
    "schema.registry.",
    "basic.auth.",
    "confluent.",
    "sasl.oauthbearer.",
    "metrics.context.",
    "bearer.auth.",
)
"""Names that begin so belong to other programs that share the mapping (serializers, monitoring)."""

INSTEAD: Final = {
    "api.version": "leave it out: the clients and the broker agree on versions",
    "auto.commit.enable": "set enable.auto.commit",
    "batch.num.messages": "set batch.size, in bytes",
    "consumer.timeout.ms": "pass a time-out to poll(), which returns nothing after it",
    "compression.codec": "set compression.type",
    "compression.level": "set compression.gzip.level, compression.lz4.level or compression.zstd.level",
    "enable.auto.offset.store": "set enable.auto.commit=false, and pass the offsets to commit()",
    "enable.partition.eof": "compare position() with end_offsets()",
    "error_cb": "errors are raised by the calls and logged; pass none",
    "fetch.message.max.bytes": "set max.partition.fetch.bytes",
    "fetch.wait.max.ms": "set fetch.max.wait.ms",
    "log_cb": "the clients log to the logger 'barnabas.client' of Python's logging",
    "logger": "the clients log to the logger 'barnabas.client' of Python's logging",
    "max.in.flight": "set max.in.flight.requests.per.connection",
    "message.copy.max.bytes": "leave it out: records are copied once",
    "message.max.bytes": "set max.request.size",
    "message.send.max.retries": "set retries",
    "message.timeout.ms": "set delivery.timeout.ms",
    "metadata.broker.list": "set bootstrap.servers",
    "on_commit": "await consumer.commit(), which raises the error of the commit",
    "on_delivery": "pass on_delivery to send()",
    "partitioner": "pass a function as the argument partitioner of the producer",
    "queue.buffering.max.kbytes": "set buffer.memory, in bytes",
    "queue.buffering.max.ms": "set linger.ms",
    "reconnect.backoff.jitter.ms": "set reconnect.backoff.ms and reconnect.backoff.max.ms",
    "request.required.acks": "set acks",
    "sasl.plain.password": "set sasl.password",
    "sasl.plain.username": "set sasl.username",
    "sasl.mechanisms": "set sasl.mechanism",
    "socket.receive.buffer.bytes": "set receive.buffer.bytes",
    "socket.send.buffer.bytes": "set send.buffer.bytes",
    "socket.timeout.ms": "set request.timeout.ms",
    "ssl.cafile": "set ssl.truststore.location",
    "ssl.certfile": "set ssl.certificate.location",
    "ssl.check.hostname": "set ssl.endpoint.identification.algorithm; an empty text checks no name",
    "ssl.context": "set ssl.truststore.location and ssl.keystore.location",
    "ssl.keyfile": "set ssl.key.location",
    "ssl.password": "set ssl.key.password",
    "ssl.ca.pem": "set ssl.truststore.certificates",
    "ssl.certificate.pem": "set ssl.keystore.certificate.chain",
    "ssl.key.pem": "set ssl.keystore.key",
    "ssl.crl.location": "lists of revoked certificates are not supported",
    "stats_cb": "leave it out: the clients have no statistics callback",
    "throttle_cb": "leave it out: the clients wait for as long as a broker throttles them",
    "topic.metadata.refresh.interval.ms": "set metadata.max.age.ms",
}
"""Configs of other clients that the user would miss: the config or argument that does the same here."""
