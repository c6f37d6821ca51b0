"""Value: how a cluster link connects to its source: the settings of Kafka's clients, as security settings.

security.protocol   PLAINTEXT (the default), SSL, SASL_PLAINTEXT, SASL_SSL
ssl.*               as of Kafka's clients; files are read by the brokers
sasl.mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI, with sasl.jaas.config
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import GSSAPI, OAUTHBEARER, SaslConfig, SecurityConfig, TlsConfig
from barnabas.protocol.security.credentials import PASSWORD_MECHANISMS

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def link_security(client: Mapping[str, str]) -> SecurityConfig:
    """The security settings in the client settings of a link. Raises ConfigError."""
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol={protocol} is not one of {', '.join(_PROTOCOLS)}.")
    return SecurityConfig(
        _tls(client) if protocol.endswith("SSL") else None,
        _sasl(client) if protocol.startswith("SASL") else None,
    )


def _tls(client: Mapping[str, str]) -> TlsConfig:
    get = client.get
    return TlsConfig(
        ssl_truststore_location=get("ssl.truststore.location"),
        ssl_truststore_certificates=get("ssl.truststore.certificates"),
        ssl_certificate_location=get("ssl.keystore.location"),
        ssl_keystore_certificate_chain=get("ssl.keystore.certificate.chain"),
        ssl_keystore_key=get("ssl.keystore.key"),
        ssl_key_password=get("ssl.key.password"),
        verify_host_name=bool(get("ssl.endpoint.identification.algorithm", "https")),
        ssl_enabled_protocols=_list(get("ssl.enabled.protocols")),
        ssl_cipher_suites=_list(get("ssl.cipher.suites")),
        ssl_keystore_type=get("ssl.keystore.type", "PEM"),
        ssl_keystore_password=get("ssl.keystore.password"),
        ssl_truststore_type=get("ssl.truststore.type", "PEM"),
        ssl_truststore_password=get("ssl.truststore.password"),
    )


def _list(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _sasl(client: Mapping[str, str]) -> SaslConfig:
    mechanism = client.get("sasl.mechanism", GSSAPI).upper()
    from barnabas.protocol.security.jaas import parse_jaas  # which a node without SASL does not import

    text = client.get("sasl.jaas.config")
    entry = parse_jaas(text) if text else None
    options = {} if entry is None else dict(entry.options)
    if mechanism == OAUTHBEARER:
        from barnabas.protocol.security.oauth.allowed import AllowedSources
        from barnabas.protocol.security.oauth.login_settings import OAuthSettings, read_login

        return SaslConfig(
            OAUTHBEARER, oauth=read_login(OAuthSettings(client.get, options, str, AllowedSources.of(os.environ)))
        )
    if mechanism == GSSAPI:
        from barnabas.protocol.security.kerberos.settings import read_kerberos_login

        login = read_kerberos_login(options, client.get("sasl.kerberos.service.name"))
        return SaslConfig(GSSAPI, login.principal, kerberos=login)
    if mechanism not in PASSWORD_MECHANISMS:
        raise ConfigError(f"sasl.mechanism={mechanism} is not supported.")
    if entry is None or entry.username is None or entry.password is None:
        raise ConfigError(
            f"sasl.mechanism={mechanism} needs a user. Set sasl.jaas.config to"
            ' org.apache.kafka.common.security.plain.PlainLoginModule required username="..." password="...";'
            " (scram.ScramLoginModule for SCRAM)."
        )
    return SaslConfig(mechanism, entry.username, entry.password, entry.tokenauth)
