"""Table: broker configs that Kafka can change while a broker runs, and Barnabas cannot.

A broker of Barnabas reads some of these configs only when it starts, and has no use for the others: it has no thread
pools of this kind. The controller rejects a change of them, because a change that is
accepted and has no effect misleads the administrator. A change that another implementation wrote into the metadata log
stays as it is.

The configs of TLS and SASL are applied with the prefix of a listener that is opened while the broker runs, and those in
`STORES` also with the prefix of an open one.
"""

from __future__ import annotations

from typing import Final

NOT_APPLIED: Final = frozenset(
    {
        # read at the start
        "cordoned.log.dirs",
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
        # TLS: those of the stores are applied, for one listener
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)

STORES: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
"""The configs of an open listener's TLS that can be changed (Kafka's `SslConfigs.RECONFIGURABLE_CONFIGS`)."""
OF_OPEN_LISTENERS: Final = STORES | {"max.connections", "max.connection.creation.rate"}
"""All configs with the prefix of a listener that can be changed while the listener is open."""
