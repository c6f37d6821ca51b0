"""Table: broker configs of TLS.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, ListOf, OneOf
from barnabas.server.metadata.configs.rows import BROKER, LOW, boolean, class_, list_, password, string

SSL_KEYS: Final[tuple[ConfigKey, ...]] = (
    boolean(
        "ssl.allow.dn.changes",
        False,
        "Whether a new certificate of a running listener may have another distinguished name.",
        importance=LOW,
    ),
    boolean(
        "ssl.allow.san.changes",
        False,
        "Whether a new certificate of a running listener may lack alternative names the old one had.",
        importance=LOW,
    ),
    list_(
        "ssl.cipher.suites",
        (),
        "The cipher suites that may be negotiated; empty allows all that are supported.",
        ListOf(),
        update_mode=BROKER,
    ),
    string(
        "ssl.client.auth",
        "none",
        "Whether clients must present a certificate: required, requested or none.",
        OneOf(("required", "requested", "none")),
        update_mode=BROKER,
    ),
    list_(
        "ssl.enabled.protocols",
        ("TLSv1.2", "TLSv1.3"),
        "The TLS versions that may be negotiated.",
        ListOf(),
        update_mode=BROKER,
    ),
    string(
        "ssl.endpoint.identification.algorithm",
        "https",
        "How a server's host name is checked against its certificate; empty does not check.",
        importance=LOW,
        update_mode=BROKER,
    ),
    class_("ssl.engine.factory.class", None, "The class that creates TLS engines.", importance=LOW, update_mode=BROKER),
    password("ssl.key.password", "The password of the private key.", update_mode=BROKER),
    string("ssl.keymanager.algorithm", "SunX509", "The algorithm of the key manager.", update_mode=BROKER),
    password("ssl.keystore.certificate.chain", "The node's certificate chain as PEM text.", update_mode=BROKER),
    password("ssl.keystore.key", "The node's private key as PEM text.", update_mode=BROKER),
    string("ssl.keystore.location", None, "The file of the key store.", update_mode=BROKER),
    password("ssl.keystore.password", "The password of the key store.", update_mode=BROKER),
    string("ssl.keystore.type", "JKS", "The format of the key store: JKS, PKCS12 or PEM.", update_mode=BROKER),
    string(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "Rules that map a certificate's distinguished name to a short name, the first match wins.",
        importance=LOW,
    ),
    string("ssl.protocol", "TLSv1.3", "The newest TLS version to negotiate.", update_mode=BROKER),
    string("ssl.provider", None, "The security provider of TLS connections.", update_mode=BROKER),
    string(
        "ssl.secure.random.implementation",
        None,
        "The source of random numbers of TLS connections.",
        importance=LOW,
        update_mode=BROKER,
    ),
    string("ssl.trustmanager.algorithm", "PKIX", "The algorithm of the trust manager.", update_mode=BROKER),
    password("ssl.truststore.certificates", "The trusted certificates as PEM text.", update_mode=BROKER),
    string("ssl.truststore.location", None, "The file of the trust store.", update_mode=BROKER),
    password("ssl.truststore.password", "The password of the trust store.", update_mode=BROKER),
    string("ssl.truststore.type", "JKS", "The format of the trust store: JKS, PKCS12 or PEM.", update_mode=BROKER),
)
