"""The settings with which clients connect to a registry, the users of a registry, and its configuration file."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.http.logins import REMEMBERED_S, Logins
from barnabas.registry.access import RegistryLogin, read_login
from barnabas.registry.client import RegistryClient
from barnabas.registry.registry_file import RegistryFile, read_registry_file
from barnabas.registry.security import ClusterUsers, build_security

BASIC = {"authentication.method": "BASIC"}


def login(**settings: str) -> RegistryLogin:
    return read_login({name.replace("_", "."): text for name, text in settings.items()}.get)


def test_where_the_user_comes_from() -> None:
    assert login() == RegistryLogin()
    assert login(basic_auth_user_info="a:b:c").basic_auth == ("a", "b:c")
    assert login(schema_registry_basic_auth_user_info="a:b").basic_auth == ("a", "b")
    assert login(basic_auth_user_info="a:b", basic_auth_credentials_source="URL").basic_auth is None
    inherited = {"basic_auth_credentials_source": "sasl_inherit"}
    assert login(**inherited, sasl_username="u", sasl_password="p").basic_auth == ("u", "p")
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    assert login(**inherited, sasl_jaas_config=jaas).basic_auth == ("u", "p")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"basic_auth_credentials_source": "USER_INFO"}, "basic.auth.user.info is missing"),
        ({"basic_auth_user_info": "a"}, "must be user:password"),
        ({"basic_auth_credentials_source": "SASL_INHERIT"}, "set sasl.username and sasl.password"),
        ({"basic_auth_credentials_source": "OTHER"}, "USER_INFO, URL or SASL_INHERIT"),
    ],
)
def test_wrong_settings_of_the_user_are_named(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        login(**settings)


def test_tls_by_the_names_of_java_and_of_librdkafka() -> None:
    java = login(
        schema_registry_ssl_truststore_location="/t.p12",
        schema_registry_ssl_truststore_type="pkcs12",
        schema_registry_ssl_truststore_password="x",
        schema_registry_ssl_endpoint_identification_algorithm="",
    )
    assert java.tls == TlsConfig(
        ssl_truststore_location="/t.p12",
        ssl_truststore_type="PKCS12",
        ssl_truststore_password="x",
        verify_host_name=False,
    )
    librdkafka = login(
        schema_registry_ssl_ca_location="/ca.pem",
        schema_registry_ssl_certificate_location="/c.pem",
        schema_registry_ssl_key_location="/k.pem",
    )
    assert librdkafka.tls == TlsConfig(
        ssl_truststore_location="/ca.pem", ssl_certificate_location="/c.pem", ssl_key_location="/k.pem"
    )


def test_passwords_are_in_no_repr() -> None:
    assert "secret" not in repr(login(basic_auth_user_info="a:secret"))


def test_a_client_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="write http:"):
        RegistryClient.from_settings({})


# ---- the server


def test_a_registry_without_settings_has_no_security() -> None:
    assert build_security({"num.partitions": "1"}, {}, is_https=False) is None


@pytest.mark.parametrize(
    ("configs", "settings", "reason"),
    [
        (BASIC, {}, "needs authentication.users.file"),
        ({**BASIC, "authentication.users": "ldap"}, {}, "use file or cluster"),
        ({**BASIC, "authentication.users": "cluster"}, {"sasl.mechanism": "GSSAPI"}, "SCRAM-SHA-256"),
        (
            {**BASIC, "authentication.users": "cluster", "authentication.roles": "admin"},
            {"sasl.mechanism": "PLAIN"},
            "authentication.roles has no effect",
        ),
    ],
)
def test_wrong_settings_of_a_registry_are_named(
    configs: dict[str, str], settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        build_security(configs, settings, is_https=False)


def test_users_of_a_cluster_are_asked_once_a_minute() -> None:
    async def main() -> None:
        now, logins, down = [0.0], list[str](), [False]

        async def log_in(name: str, password: str) -> None:
            logins.append(name)
            if down[0]:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
            if password != "secret":
                raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED)

        users = Logins(ClusterUsers(log_in), lambda: now[0])
        assert [await users.accepts("alice", "secret", "10.0.0.1") for _ in range(3)] == [True] * 3
        assert [await users.accepts("alice", "wrong", "10.0.0.1") for _ in range(2)] == [False] * 2
        assert logins == ["alice"] * 3, "a wrong password is never remembered"
        down[0] = True
        assert await users.accepts("alice", "secret", "10.0.0.1")
        now[0] += REMEMBERED_S
        with pytest.raises(KafkaError):
            await users.accepts("alice", "secret", "10.0.0.1")

    asyncio.run(main())


def test_the_file_of_confluents_registry() -> None:
    found = read_registry_file(
        {
            "listeners": "https://0.0.0.0:8081",
            "kafkastore.bootstrap.servers": "SASL_SSL://a:9092,SASL_SSL://b:9092",
            "kafkastore.security.protocol": "SASL_SSL",
            "kafkastore.ssl.truststore.location": "/t.pem",
            "kafkastore.topic": "_mine",
            "ssl.keystore.location": "/k.pem",
            "authentication.method": "BASIC",
            "inter.instance.protocol": "http",
        }
    )
    assert found == RegistryFile(
        "https://0.0.0.0:8081",
        "_mine",
        {
            "bootstrap.servers": "a:9092,b:9092",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": "/t.pem",
        },
        {"ssl.keystore.location": "/k.pem", "authentication.method": "BASIC"},
        ("inter.instance.protocol",),
    )
    with pytest.raises(ConfigError, match="one listener"):
        read_registry_file({"listeners": "http://a:1,http://b:2"})


def test_a_registry_that_may_not_lead_only_reads() -> None:
    assert read_registry_file({"leader.eligibility": "false"}).read_only
    assert not read_registry_file({"master.eligibility": "True"}).read_only
    with pytest.raises(ConfigError, match=r"leader\.eligibility=no: the value is true or false"):
        read_registry_file({"leader.eligibility": "no"})
