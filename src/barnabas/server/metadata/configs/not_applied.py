"""Table: broker configs that Kafka can change while a broker runs, and Barnabas cannot.

A broker of Barnabas reads some of these configs only when it starts, among them those of its listeners, and has no use
for the others: it has no thread pools of this kind, and no tiered storage in its logs. The controller rejects a change
of them, because a change that is accepted and has no effect misleads the administrator. A change that another
implementation wrote into the metadata log stays as it is.
"""

from __future__ import annotations

from typing import Final

NOT_APPLIED: Final = frozenset(
    {
        # read at the start
        "cordoned.log.dirs",
        "listener.security.protocol.map",
        "listeners",
        "producer.id.expiration.ms",
        # thread pools and buffers that one event loop does not have
        "background.threads",
        "group.coordinator.cached.buffer.max.bytes",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "share.coordinator.cached.buffer.max.bytes",
        # limits and plug-ins that are not implemented
        "config.providers",
        "metric.reporters",
        "principal.builder.class",
        # tiered storage
        "follower.fetch.last.tiered.offset.enable",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        # SASL
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.server.callback.handler.class",
        # TLS
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.key.password",
        "ssl.keymanager.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
