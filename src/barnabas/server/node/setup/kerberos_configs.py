"""Value: builds the GSSAPI of a node from its configuration: for its listeners, and for its own connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import GSSAPI, SaslConfig
from barnabas.protocol.security.jaas import JaasEntry
from barnabas.protocol.security.kerberos.names import CONFIG, KerberosShortNamer
from barnabas.protocol.security.kerberos.settings import EXAMPLE, SERVICE_NAME, keytab_of, read_kerberos_login
from barnabas.protocol.security.sasl_server import KerberosUsers

if TYPE_CHECKING:
    from barnabas.server.node.setup.security_configs import ListenerConfigs


def kerberos_users(configs: ListenerConfigs, entry: JaasEntry | None) -> KerberosUsers:
    """How the clients of a listener prove who they are. Raises ConfigError."""
    options, names = _options(configs, entry), _jaas_name(configs)
    from barnabas.protocol.transport.kerberos import KerberosAcceptor

    acceptor = KerberosAcceptor(options.get("principal"), keytab_of(options, names))
    rules = configs.of_mechanism(GSSAPI, CONFIG)
    return KerberosUsers(acceptor.context, KerberosShortNamer(acceptor.default_realm, rules))


def kerberos_login_of_node(configs: ListenerConfigs, entry: JaasEntry | None) -> SaslConfig:
    """How this node gets tickets for other nodes: as the principal of its own listener. Raises ConfigError."""
    options = _options(configs, entry)
    login = read_kerberos_login(options, configs.of_mechanism(GSSAPI, SERVICE_NAME), _jaas_name(configs))
    return SaslConfig(GSSAPI, login.principal, kerberos=login)


def _options(configs: ListenerConfigs, entry: JaasEntry | None) -> dict[str, str]:
    if entry is None:
        raise ConfigError(
            "sasl.enabled.mechanisms=GSSAPI, which is the default, needs the key of the node. Set"
            f" {_jaas_name(configs)} to {EXAMPLE} Or choose another mechanism, for example"
            " sasl.enabled.mechanisms=SCRAM-SHA-512."
        )
    return dict(entry.options)


def _jaas_name(configs: ListenerConfigs) -> str:
    return configs.mechanism_name(GSSAPI, "sasl.jaas.config")
