"""Value: the configs of `config.py` as typed, frozen values, one class for each part that uses them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack

from barnabas.client.config import CLUSTER_CONFIGS, resolve_config
from barnabas.client.typed_settings import ClusterSettings
from barnabas.core.backoff import Backoff
from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import GSSAPI, OAUTHBEARER, PLAINTEXT, SaslConfig, SecurityConfig, TlsConfig

if TYPE_CHECKING:
    from barnabas.protocol.security.kerberos.settings import KerberosLogin
    from barnabas.protocol.security.oauth.logins import OAuthLogin

Settings = Mapping[str, Any]


DEFAULT_CLIENT_ID: Final = "barnabas"
_RETRY_BACKOFF: Final = Backoff(100, 1_000)
_RECONNECT_BACKOFF: Final = Backoff(50, 1_000)


_STORE_TYPES = ("PEM", "PKCS12", "JKS")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The configs of `Cluster`. Times are milliseconds, as in Kafka's configs."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str | None = None
    request_timeout_ms: int = 30_000
    retry_backoff: Backoff = _RETRY_BACKOFF
    reconnect_backoff: Backoff = _RECONNECT_BACKOFF
    connect_timeout_ms: int = 10_000
    connect_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    rebootstrap: bool = True
    security: SecurityConfig = PLAINTEXT
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    @classmethod
    def from_settings(cls, settings: Settings) -> ClusterConfig:
        """From the typed configs of any client that `resolve_config` returned."""
        return cls(
            parse_servers(settings["bootstrap.servers"]),
            settings["client.id"] or DEFAULT_CLIENT_ID,
            settings["request.timeout.ms"],
            Backoff(settings["retry.backoff.ms"], settings["retry.backoff.max.ms"]),
            Backoff(settings["reconnect.backoff.ms"], settings["reconnect.backoff.max.ms"]),
            settings["socket.connection.setup.timeout.ms"],
            settings["socket.connection.setup.timeout.max.ms"],
            settings["connections.max.idle.ms"],
            settings["metadata.max.age.ms"],
            str(settings["metadata.recovery.strategy"]).lower() == "rebootstrap",
            security_config(settings),
            settings["send.buffer.bytes"],
            settings["receive.buffer.bytes"],
        )

    @classmethod
    def of(cls, config: Mapping[str, object] | None = None, **keywords: Unpack[ClusterSettings]) -> ClusterConfig:
        """From configs as a user writes them: `ClusterConfig.of(bootstrap_servers="localhost:9092")`."""
        return cls.from_settings(resolve_config(CLUSTER_CONFIGS, config, keywords))


def parse_servers(servers: object) -> tuple[tuple[str, int], ...]:
    """`host:port` texts (or one text with commas) as pairs; `[::1]:9092` is IPv6. Raises ConfigError."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)  # type: ignore[call-overload]  # a setting that is no iterable raises
    pairs: list[tuple[str, int]] = []
    for raw in texts:
        text = str(raw).strip()
        if not text:
            continue
        text = text.split("://", 1)[-1]
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigError(f"bootstrap.servers: {text!r} is not host:port, for example localhost:9092.")
        pair = (host.strip("[]"), int(port))
        if pair not in pairs:
            pairs.append(pair)
    if not pairs:
        raise ConfigError("bootstrap.servers is empty: name at least one broker, for example localhost:9092.")
    return tuple(pairs)


def security_config(settings: Settings) -> SecurityConfig:
    """The security configs of connections. Raises ConfigError."""
    _check_stores(settings)
    protocol = str(settings["security.protocol"]).upper()
    return SecurityConfig(
        _tls_config(settings) if protocol in ("SSL", "SASL_SSL") else None,
        _sasl_config(settings) if protocol in ("SASL_PLAINTEXT", "SASL_SSL") else None,
    )


def _sasl_config(settings: Settings) -> SaslConfig:
    if str(settings["sasl.mechanism"]).upper() == OAUTHBEARER:
        return SaslConfig(OAUTHBEARER, oauth=_oauth_login(settings))
    if str(settings["sasl.mechanism"]).upper() == GSSAPI:
        login = _kerberos_login(settings)
        return SaslConfig(GSSAPI, login.principal, kerberos=login)
    username, password, tokenauth = settings["sasl.username"], settings["sasl.password"], False
    if settings["sasl.jaas.config"] and username is None:
        from barnabas.protocol.security.jaas import parse_jaas

        entry = parse_jaas(settings["sasl.jaas.config"])
        username, password, tokenauth = entry.username, entry.password, entry.tokenauth
    return SaslConfig(settings["sasl.mechanism"] or "PLAIN", username, password, tokenauth)


def _oauth_login(settings: Settings) -> OAuthLogin:
    from barnabas.protocol.security.jaas import parse_jaas
    from barnabas.protocol.security.oauth.allowed import AllowedSources
    from barnabas.protocol.security.oauth.login_settings import OAuthSettings, read_login

    text = settings["sasl.jaas.config"]
    options = parse_jaas(text).options if text else {}
    return read_login(OAuthSettings(settings.get, options, str, AllowedSources.of(os.environ)))


def _kerberos_login(settings: Settings) -> KerberosLogin:
    from barnabas.protocol.security.jaas import parse_jaas
    from barnabas.protocol.security.kerberos.settings import read_kerberos_login

    text, keytab = settings["sasl.jaas.config"], settings["sasl.kerberos.keytab"]
    options = dict(parse_jaas(text).options) if text else {}
    if keytab:
        options |= {"useKeyTab": "true", "keyTab": keytab}
    if settings["sasl.kerberos.principal"]:
        options["principal"] = settings["sasl.kerberos.principal"]
    return read_kerberos_login(options, settings["sasl.kerberos.service.name"])


def _tls_config(settings: Settings) -> TlsConfig:
    keystore = settings["ssl.keystore.location"]
    return TlsConfig(
        settings["ssl.ca.location"] or settings["ssl.truststore.location"],
        settings["ssl.truststore.certificates"],
        settings["ssl.certificate.location"] or keystore,
        settings["ssl.key.location"] or keystore,
        settings["ssl.keystore.certificate.chain"],
        settings["ssl.keystore.key"],
        settings["ssl.key.password"],
        bool(settings["ssl.endpoint.identification.algorithm"]),
        tuple(settings["ssl.enabled.protocols"]),
        ssl_keystore_type=settings["ssl.keystore.type"] if keystore else "PEM",
        ssl_keystore_password=settings["ssl.keystore.password"],
        ssl_truststore_type=settings["ssl.truststore.type"],
        ssl_truststore_password=settings["ssl.truststore.password"],
    )


def _check_stores(settings: Settings) -> None:
    """Raises ConfigError for unknown types of key and trust stores, and for a certificate chain or a key without the
    other. `security_config` checks this for every `security.protocol`."""
    for name in ("ssl.keystore.type", "ssl.truststore.type"):
        if str(settings[name]).upper() not in _STORE_TYPES:
            raise ConfigError(f"{name}={settings[name]} is not supported; use {', '.join(_STORE_TYPES)}.")
    chain, key = settings["ssl.keystore.certificate.chain"], settings["ssl.keystore.key"]
    if (chain is None) is not (key is None):
        raise ConfigError("ssl.keystore.certificate.chain and ssl.keystore.key go together: set both, or neither.")
