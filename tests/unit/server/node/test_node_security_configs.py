"""The security settings of a node: precedence of the prefixes, and errors that name the setting."""

from __future__ import annotations

import re
from random import Random

import pytest

from barnabas.core.clock import SystemClock
from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import PLAINTEXT, SaslConfig
from barnabas.server.node.config import build_config, unknown_names
from barnabas.server.node.setup.listeners import open_listeners
from barnabas.server.node.setup.security import NodeSecurity, is_secure
from barnabas.server.node.setup.security_configs import ListenerConfigs, SecuritySources, build_node_security
from tests.system.client.tls_proxy import Authority

_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="n" password="p" user_n="p";'
_SERVER = Authority("Barnabas tests").sign("localhost")
_PEM = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": _SERVER.key,
    "ssl.keystore.certificate.chain": _SERVER.certificate,
}
_PLAIN = {
    "listeners": "SASL_PLAINTEXT://h:1",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": _JAAS,
}

_BEARER = "listener.name.sasl_plaintext.oauthbearer."
_OAUTH = {
    "listeners": "SASL_PLAINTEXT://h:1",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
}
_UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)


def _build(given: dict[str, str]) -> NodeSecurity:
    config = build_config({"log.dirs": "/d", **given})
    return build_node_security(
        config, SecuritySources(SystemClock(), lambda: 0.0, Random(1), lambda _m, _u: None, lambda _t: None)
    )


def test_the_longest_prefix_of_a_config_precedes() -> None:
    config = build_config(
        {
            "log.dirs": "/d",
            "listeners": "OUT://h:1,IN://h:2",
            "listener.security.protocol.map": "OUT:SASL_PLAINTEXT,IN:PLAINTEXT",
            "connections.max.reauth.ms": "1",
            "listener.name.out.connections.max.reauth.ms": "2",
            "listener.name.out.plain.connections.max.reauth.ms": "3",
        }
    )
    out, inside = ListenerConfigs(config, "OUT"), ListenerConfigs(config, "IN")
    name = "connections.max.reauth.ms"
    assert (out.of_mechanism("PLAIN", name), out.of_mechanism("SCRAM-SHA-256", name)) == (3, 2)
    assert (inside.of_mechanism("PLAIN", name), inside[name]) == (1, 1)


def test_prefixed_names_are_known_and_misspelt_ones_are_not() -> None:
    names = {
        "listener.name.a.ssl.keystore.location": "",
        "listener.name.a.scram-sha-256.sasl.jaas.config": "",
        "listener.name.a.ssl.keystore.lokation": "",
    }
    assert unknown_names(names) == ["listener.name.a.ssl.keystore.lokation"]


def test_a_node_without_security_settings_imports_and_builds_nothing() -> None:
    config = build_config({"log.dirs": "/d", "listeners": "PLAINTEXT://h:1"})
    assert not is_secure(config)
    assert NodeSecurity() == NodeSecurity({}, PLAINTEXT, PLAINTEXT)


def test_a_node_uses_its_own_listener_s_settings_for_connections_to_brokers() -> None:
    security = _build(_PLAIN)
    assert security.to_brokers.sasl == SaslConfig("PLAIN", "n", "p")
    assert security.to_brokers.tls is None
    assert security.to_controllers == PLAINTEXT
    (listener,) = security.listeners.values()
    assert listener.sasl is not None
    assert listener.sasl.credentials.plain_users == {"n": "p"}
    assert "p" not in repr(listener.sasl.credentials).removeprefix("SaslCredentials")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"listeners": "SSL://h:1"}, "Listener SSL (SSL): A listener with TLS needs a certificate"),
        ({"listeners": "SSL://h:1", **_PEM, "ssl.keystore.password": "x"}, "ssl.keystore.password cannot be used"),
        ({"listeners": "SSL://h:1", **_PEM, "ssl.keystore.key": "x"}, "cannot be read"),
        ({"listeners": "SSL://h:1", **_PEM, "ssl.client.auth": "required"}, "needs ssl.truststore.location"),
        ({"listeners": "SSL://h:1", **_PEM, "listener.name.ssl.ssl.client.auth": "yes"}, "listener.name.ssl.ssl"),
        ({"listeners": "SSL://h:1", **_PEM, "ssl.principal.mapping.rules": "x"}, "ssl.principal.mapping.rules"),
        ({"listeners": "SSL://h:1", **_PEM, "ssl.keystore.location": "/x"}, "exclude each other"),
        ({"listeners": "SSL://h:1", "ssl.keystore.location": "/nowhere", "ssl.keystore.type": "PEM"}, "cannot be read"),
        ({"listeners": "SSL://h:1", "ssl.keystore.key": "x"}, "go together"),
        ({"listeners": "SSL://h:1", **_PEM, "ssl.enabled.protocols": "TLSv1"}, "ssl.enabled.protocols"),
        ({"listeners": "SASL_PLAINTEXT://h:1"}, "sasl.enabled.mechanisms=GSSAPI"),
        ({**_PLAIN, "sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms"),
        ({**_PLAIN, "listener.name.sasl_plaintext.plain.sasl.jaas.config": "x"}, "plain.sasl.jaas.config"),
        ({"listeners": "SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": _JAAS},
         "Set listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        ({**_PLAIN, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "must be one of the mechanisms"),
        ({**_PLAIN, "listener.name.sasl_plaintext.plain.sasl.jaas.config": "a.B required;"}, "no user name for other"),
        ({**_PLAIN, "connections.max.idle.ms": "50"}, "must be less than connections.max.idle.ms"),
        (_OAUTH, "Set listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"),
        ({**_OAUTH, f"{_BEARER}sasl.oauthbearer.jwks.endpoint.url": "https://idp/keys"},
         f"{_BEARER}sasl.oauthbearer.jwks.endpoint.url=https://idp/keys is not allowed"),
        ({**_OAUTH, f"{_BEARER}sasl.server.callback.handler.class": _UNSECURED},
         f"Set {_BEARER}sasl.oauthbearer.token.endpoint.url"),
        ({**_OAUTH, f"{_BEARER}sasl.jaas.config": 'a.B required unsecuredValidatorScope="x";'},
         "the option unsecuredValidatorScope is unknown"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        _build(given)
    assert "PRIVATE KEY" not in str(caught.value)


def test_ssl_client_auth_without_a_prefix_does_not_apply_to_sasl_ssl() -> None:
    security = _build(
        {
            **_PLAIN,
            **_PEM,
            "listeners": "SASL_SSL://h:1",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": _JAAS,
            "ssl.client.auth": "required",
        }
    )
    (listener,) = security.listeners.values()
    assert listener.tls is not None
    assert listener.tls.context.verify_mode.name == "CERT_NONE"


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"listeners": "PLAINTEXT://127.0.0.1:1"}, []),
        ({"listeners": "PLAINTEXT://localhost:1"}, []),
        ({"listeners": "PLAINTEXT://:1"}, ["PLAINTEXT"]),
        ({"listeners": "PLAINTEXT://10.0.0.1:1,SSL://:2,SASL_SSL://:3"}, ["PLAINTEXT", "SSL"]),
        ({"listeners": "SSL://:2", "ssl.client.auth": "required"}, []),
        (
            {"listeners": "SSL://:2", "ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "none"},
            ["SSL"],
        ),
    ],
)
def test_listeners_without_authentication_that_other_hosts_reach(given: dict[str, str], names: list[str]) -> None:
    config = build_config({"log.dirs": "/d", **given})
    assert [endpoint.name for endpoint in open_listeners(config)] == names
