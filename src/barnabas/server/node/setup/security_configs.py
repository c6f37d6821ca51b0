"""Value: builds the security of a node from its configuration.

    listener.name.<listener>.<mechanism>.<config>    precedes
    listener.name.<listener>.<config>                precedes
    <config>

The authorities are KIP-103 (names of listeners) and KIP-226 (prefixes). `build_node_security` checks all settings and
reads all certificates, so a node with wrong settings does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.config import ConfigError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.config import GSSAPI, OAUTHBEARER, PLAINTEXT, SaslConfig, SecurityConfig, TlsConfig
from barnabas.protocol.security.credentials import SCRAM_MECHANISMS, ScramCredential
from barnabas.protocol.security.delegation_tokens import StoredToken, TokenLogins
from barnabas.protocol.security.jaas import JaasEntry, parse_jaas
from barnabas.protocol.security.sasl_server import SUPPORTED_MECHANISMS, SaslCredentials, TokenLogin, no_tokens
from barnabas.protocol.transport.listener_security import ListenerSecurity
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS
from barnabas.server.node.setup.kerberos_configs import kerberos_login_of_node, kerberos_users
from barnabas.server.node.setup.oauth_configs import OAuthOfNode, oauth_login_of_node
from barnabas.server.node.setup.security import NodeSecurity

if TYPE_CHECKING:
    from barnabas.protocol.security.sasl_conversation import SaslServerConfig
    from barnabas.protocol.transport.endpoint import ListenerEndpoint
    from barnabas.protocol.transport.oauth.provider_keys import ProviderKeys
    from barnabas.protocol.transport.tls_server import TlsServerConfig
    from barnabas.server.node.config import NodeConfig

log = get_logger("barnabas.server.node")

PREFIX: Final = "listener.name."
_JAAS: Final = "sasl.jaas.config"
_SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
_REAUTH: Final = "connections.max.reauth.ms"
_DECOY_BITS: Final = 256


class SecuritySources(Struct, frozen=True):
    """What the security of a node needs besides the configuration."""

    clock: Clock
    now: Callable[[], float]
    """A monotonic time in seconds."""
    rng: Rng
    """A generator that cannot be predicted."""
    scram_credential: Callable[[int, str], ScramCredential | None]
    """The credential of a user in the newest metadata image, by the number of the mechanism and the name."""
    token: Callable[[str], StoredToken | None]
    """The delegation token with an id in the newest metadata image."""


class ListenerConfigs:
    """The values of the configs for one listener, in their types."""

    def __init__(self, config: NodeConfig, listener: str) -> None:
        self._config = config
        self.listener = listener
        self._prefix = f"{PREFIX}{listener.lower()}."

    def __getitem__(self, name: str) -> Any:
        text = self.prefixed(name)
        return self._config[name] if text is None else self._parse(name, text)

    @property
    def given(self) -> Mapping[str, str]:
        return self._config.given

    def prefixed(self, name: str) -> str | None:
        """The text of `listener.name.<listener>.<name>`; None if it is not set."""
        return self._config.given.get(self._prefix + name)

    def of_mechanism(self, mechanism: str, name: str) -> Any:
        """The value of a config that may be set for each mechanism."""
        text = self._config.given.get(self.mechanism_name(mechanism, name))
        return self[name] if text is None else self._parse(name, text)

    def mechanism_name(self, mechanism: str, name: str) -> str:
        return f"{self._prefix}{mechanism.lower()}.{name}"

    def _parse(self, name: str, text: str) -> Any:
        try:
            return BROKER_CONFIGS.parse(name, text)
        except ConfigError as error:
            raise ConfigError(f"{error} (set by {self._prefix}{name})") from error


def build_node_security(config: NodeConfig, sources: SecuritySources) -> NodeSecurity:
    """Raises ConfigError, which names the setting that is wrong or missing."""
    listeners: dict[str, ListenerSecurity] = {}
    oauth = OAuthOfNode(sources.rng)
    for endpoint in (*config.listeners, *config.controller_listeners):
        if endpoint.security_protocol != "PLAINTEXT":
            configs = ListenerConfigs(config, endpoint.name)
            try:
                listeners[endpoint.name] = _listener_security(configs, endpoint.security_protocol, sources, oauth)
            except ConfigError as error:
                raise ConfigError(f"Listener {endpoint.name} ({endpoint.security_protocol}): {error.detail}") from error
    return NodeSecurity(listeners, security_to_brokers(config), security_to_controllers(config), oauth.provider_keys)


def security_of_listener(
    config: NodeConfig, endpoint: ListenerEndpoint, sources: SecuritySources
) -> tuple[ListenerSecurity, tuple[ProviderKeys, ...]]:
    """The security of one listener with TLS or SASL that is opened while the node runs. Raises ConfigError."""
    oauth = OAuthOfNode(sources.rng)
    configs = ListenerConfigs(config, endpoint.name)
    return _listener_security(configs, endpoint.security_protocol, sources, oauth), oauth.provider_keys


def security_to_brokers(config: NodeConfig) -> SecurityConfig:
    """How the node connects to other brokers. Raises ConfigError."""
    between, setting = config.inter_broker_listener, "sasl.mechanism.inter.broker.protocol"
    protocols = {endpoint.name: endpoint.security_protocol for endpoint in config.listeners}
    if not between or protocols[between] == "PLAINTEXT":
        return PLAINTEXT
    return _outgoing(config, between, protocols[between], config[setting], setting)


def security_to_controllers(config: NodeConfig) -> SecurityConfig:
    """How the node connects to controllers. Raises ConfigError."""
    (name, protocol), setting = config.controller_listener, "sasl.mechanism.controller.protocol"
    return PLAINTEXT if protocol == "PLAINTEXT" else _outgoing(config, name, protocol, config[setting], setting)


def tls_server_config(config: NodeConfig, endpoint: ListenerEndpoint) -> TlsServerConfig:
    """The TLS settings of a listener. Raises ConfigError."""
    return _tls_server_config(ListenerConfigs(config, endpoint.name), endpoint.security_protocol)


def _listener_security(
    configs: ListenerConfigs, protocol: str, sources: SecuritySources, oauth: OAuthOfNode
) -> ListenerSecurity:
    tls = sasl = None
    if protocol in ("SSL", "SASL_SSL"):
        from barnabas.protocol.transport.tls_server import TlsAcceptor

        tls = TlsAcceptor(_tls_server_config(configs, protocol), sources.now)
    if protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        sasl = _sasl_server_config(configs, sources, oauth)
    return ListenerSecurity(sources.clock, sources.rng, tls, sasl)


def _tls_server_config(configs: ListenerConfigs, protocol: str) -> TlsServerConfig:
    from barnabas.protocol.transport.tls_server import TlsServerConfig

    client_auth = configs["ssl.client.auth"]
    if protocol == "SASL_SSL":
        client_auth = configs.prefixed("ssl.client.auth") or "none"
        if client_auth == "none" and configs["ssl.client.auth"] != "none":
            log.warning(
                "ssl.client.auth does not apply to a SASL_SSL listener; set it with the listener's prefix",
                listener=configs.listener,
            )
    return TlsServerConfig(
        _tls_config(configs),
        client_auth,
        configs["ssl.principal.mapping.rules"],
        configs["ssl.allow.dn.changes"],
        configs["ssl.allow.san.changes"],
    )


def _tls_config(configs: ListenerConfigs) -> TlsConfig:
    """The key store and the trust store, for the listener and for outgoing connections to such listeners."""
    if configs["ssl.keystore.key"] is not None and configs["ssl.keystore.location"] is not None:
        raise ConfigError("ssl.keystore.key and ssl.keystore.location exclude each other. Remove one of them.")
    if (configs["ssl.keystore.key"] is None) is not (configs["ssl.keystore.certificate.chain"] is None):
        raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain go together. Set both, or neither.")
    for name in ("ssl.keystore", "ssl.truststore"):
        if configs[f"{name}.type"].upper() == "PEM" and configs[f"{name}.password"] is not None:
            raise ConfigError(
                f"{name}.password cannot be used with {name}.type=PEM. The password of a key is ssl.key.password."
            )
    if configs["ssl.engine.factory.class"] is not None:
        raise ConfigError("ssl.engine.factory.class is not supported. Remove it.")
    return TlsConfig(
        ssl_truststore_location=configs["ssl.truststore.location"],
        ssl_truststore_certificates=configs["ssl.truststore.certificates"],
        ssl_certificate_location=configs["ssl.keystore.location"],
        ssl_keystore_certificate_chain=configs["ssl.keystore.certificate.chain"],
        ssl_keystore_key=configs["ssl.keystore.key"],
        ssl_key_password=configs["ssl.key.password"],
        verify_host_name=bool(configs["ssl.endpoint.identification.algorithm"]),
        ssl_enabled_protocols=tuple(configs["ssl.enabled.protocols"]),
        ssl_cipher_suites=tuple(configs["ssl.cipher.suites"]),
        ssl_keystore_type=configs["ssl.keystore.type"],
        ssl_keystore_password=configs["ssl.keystore.password"],
        ssl_truststore_type=configs["ssl.truststore.type"],
        ssl_truststore_password=configs["ssl.truststore.password"],
    )


def _sasl_server_config(configs: ListenerConfigs, sources: SecuritySources, oauth: OAuthOfNode) -> SaslServerConfig:
    from barnabas.protocol.security.sasl_conversation import SaslServerConfig

    mechanisms = _mechanisms(configs)
    for mechanism in mechanisms:
        handler = configs.mechanism_name(mechanism, _SERVER_HANDLER)
        if mechanism != OAUTHBEARER and handler in configs.given:
            raise ConfigError(f"{handler} is not supported: only logins with OAUTHBEARER can be checked by a class.")
    users: dict[str, str] = {}
    if "PLAIN" in mechanisms:
        entry = _jaas(configs, "PLAIN")
        if entry is None:
            raise ConfigError(
                f"PLAIN needs its users. Set {configs.mechanism_name('PLAIN', _JAAS)} to"
                ' org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="password";'
            )
        users = entry.users()
    token_validator = None
    if OAUTHBEARER in mechanisms:
        token_validator = oauth.validator(configs, _jaas(configs, OAUTHBEARER))
    delay_ms, idle_ms = configs["connection.failed.authentication.delay.ms"], configs["connections.max.idle.ms"]
    if 0 <= idle_ms <= delay_ms:
        raise ConfigError(
            f"connection.failed.authentication.delay.ms={delay_ms} must be less than connections.max.idle.ms={idle_ms}."
        )
    kerberos = kerberos_users(configs, _jaas(configs, GSSAPI)) if GSSAPI in mechanisms else None
    decoy = sources.rng.getrandbits(_DECOY_BITS).to_bytes(_DECOY_BITS // 8, "big")
    return SaslServerConfig(
        mechanisms,
        SaslCredentials(
            users, sources.scram_credential, decoy, _token_logins(configs, sources, decoy), token_validator, kerberos
        ),
        {mechanism: configs.of_mechanism(mechanism, _REAUTH) for mechanism in mechanisms},
        configs["sasl.server.max.receive.size"],
        delay_ms,
    )


def _token_logins(
    configs: ListenerConfigs, sources: SecuritySources, salt_key: bytes
) -> Callable[[int, str], TokenLogin | None]:
    """The logins with delegation tokens, which exist if the node has the secret key of the tokens."""
    secret_key = configs["delegation.token.secret.key"]
    return TokenLogins(secret_key, salt_key, sources.token).find if secret_key else no_tokens


def _mechanisms(configs: ListenerConfigs) -> tuple[str, ...]:
    mechanisms: tuple[str, ...] = configs["sasl.enabled.mechanisms"]
    unknown = [mechanism for mechanism in mechanisms if mechanism not in SUPPORTED_MECHANISMS]
    if unknown or not mechanisms:
        raise ConfigError(
            f"sasl.enabled.mechanisms={','.join(mechanisms)}: {', '.join(unknown) or 'an empty list'} is not supported."
            f" Set it to one or more of {', '.join(SUPPORTED_MECHANISMS)}."
        )
    return mechanisms


def _jaas(configs: ListenerConfigs, mechanism: str) -> JaasEntry | None:
    """The entry of a mechanism. As in Kafka, sasl.jaas.config without the prefixes is ignored."""
    name = configs.mechanism_name(mechanism, _JAAS)
    text = configs.of_mechanism(mechanism, _JAAS) if name in configs.given else None
    if text is None and configs[_JAAS] is not None:
        log.warning("sasl.jaas.config is ignored on brokers; set it with the prefixes", use=name)
    return None if text is None else parse_jaas(text, name)


def _outgoing(config: NodeConfig, listener: str, protocol: str, mechanism: str, setting: str) -> SecurityConfig:
    """How this node connects to `listener` of other nodes: with the settings of its own listener of that name."""
    configs = ListenerConfigs(config, listener)
    tls = _tls_config(configs) if protocol in ("SSL", "SASL_SSL") else None
    if protocol not in ("SASL_PLAINTEXT", "SASL_SSL"):
        return SecurityConfig(tls)
    if mechanism not in SUPPORTED_MECHANISMS or mechanism not in configs["sasl.enabled.mechanisms"]:
        raise ConfigError(
            f"{setting}={mechanism} must be one of the mechanisms of listener {listener}"
            f" (sasl.enabled.mechanisms={','.join(configs['sasl.enabled.mechanisms'])})."
        )
    entry = _jaas(configs, mechanism)
    if mechanism == OAUTHBEARER:
        return SecurityConfig(tls, oauth_login_of_node(configs, entry))
    if mechanism == GSSAPI:
        return SecurityConfig(tls, kerberos_login_of_node(configs, entry))
    if entry is None or entry.username is None or entry.password is None:
        module = "plain.PlainLoginModule" if mechanism not in SCRAM_MECHANISMS else "scram.ScramLoginModule"
        raise ConfigError(
            f"This node has no user name for other nodes. Set {configs.mechanism_name(mechanism, _JAAS)} to"
            f' org.apache.kafka.common.security.{module} required username="..." password="...";'
        )
    return SecurityConfig(tls, SaslConfig(mechanism, entry.username, entry.password, entry.tokenauth))
