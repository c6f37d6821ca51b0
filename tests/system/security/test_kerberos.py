"""GSSAPI with a real KDC: clients and nodes log in with key tables and ticket caches (Kafka's
SaslGssapiSslEndToEndAuthorizationTest and GssapiAuthenticationTest)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Consumer, ErrorCode, KafkaError, Producer, TopicPartition
from barnabas.core.config import ConfigError
from barnabas.testing import EmbeddedBroker
from barnabas.testing.ports import free_ports
from barnabas.testing.process_cluster import ClusterProcess
from tests.system.security.kdc import NEEDS_KERBEROS, REALM, Kdc

pytestmark = [
    pytest.mark.system,
    *NEEDS_KERBEROS,
]
_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with pytest.MonkeyPatch.context() as patch, Kdc(tmp_path_factory.mktemp("kdc")) as running:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def node_keys(kdc: Kdc) -> Path:
    return kdc.keytab("kafka/localhost")


def node_settings(keytab: Path, **more: str) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": f'{_MODULE} useKeyTab=true keyTab="{keytab}"'
        f' principal="kafka/localhost@{REALM}";',
        "delegation.token.secret.key": "key",
        **more,
    }


@pytest.fixture(scope="module")
def broker(node_keys: Path) -> Iterator[EmbeddedBroker]:
    rules = "RULE:[2:$1](host.*)s/.*/machine/,RULE:[1:$1]/L,DEFAULT"
    settings = node_settings(node_keys, **{"sasl.kerberos.principal.to.local.rules": rules})
    with EmbeddedBroker(settings, listener="SASL_PLAINTEXT://localhost:0") as running:
        yield running


def client(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "default.api.timeout.ms": 20_000,
        **more,
    }


def with_keys(keytab: Path, principal: str) -> dict[str, str]:
    text = f'{_MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}";'
    return {"sasl.jaas.config": text}


def user_of(config: dict[str, Any]) -> str:
    """The user that the broker takes the client for: the owner of a token that the client creates."""
    with Admin(config) as admin:
        return str(admin.create_delegation_token().owner)


def refusal(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        call()
    return raised.value


@pytest.mark.parametrize(
    ("principal", "user"),
    [("alice", "User:alice"), ("Bob", "User:bob"), ("kafka/other", "User:kafka"), ("host/a.b", "User:machine")],
)
def test_a_client_with_a_key_table_is_the_user_that_the_rules_name(
    kdc: Kdc, broker: EmbeddedBroker, principal: str, user: str
) -> None:
    keytab = kdc.keytab(principal)
    assert user_of(client(broker.bootstrap_servers, **with_keys(keytab, principal))) == user


def test_records_are_written_and_read(kdc: Kdc, broker: EmbeddedBroker) -> None:
    config = client(broker.bootstrap_servers, **with_keys(kdc.keytab("carol"), "carol"))
    with Producer(config) as producer:
        producer.send("t", b"one").result(60)
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found: list[bytes | None] = []
        while not found:
            found += [record.value for record in consumer.poll(1_000)]
    assert found == [b"one"]


def test_the_tickets_of_kinit_are_used(kdc: Kdc, broker: EmbeddedBroker, tmp_path: Path) -> None:
    kdc.kinit("dave", kdc.keytab("dave"), tmp_path / "tickets")
    cache = f'{_MODULE} useTicketCache=true ticketCache="FILE:{tmp_path}/tickets";'
    assert user_of(client(broker.bootstrap_servers, **{"sasl.jaas.config": cache})) == "User:dave"
    kdc.kinit("dave", kdc.keytab("dave"), Path(kdc.environment["KRB5CCNAME"].removeprefix("FILE:")))
    assert user_of(client(broker.bootstrap_servers)) == "User:dave"


def test_the_names_of_librdkafka_work(kdc: Kdc, broker: EmbeddedBroker) -> None:
    keytab = str(kdc.keytab("eve"))
    settings = {"sasl.kerberos.keytab": keytab, "sasl.kerberos.principal": f"eve@{REALM}"}
    assert user_of(client(broker.bootstrap_servers, **settings)) == "User:eve"


def test_a_client_without_a_valid_ticket_is_refused(kdc: Kdc, broker: EmbeddedBroker, tmp_path: Path) -> None:
    servers, keytab = broker.bootstrap_servers, kdc.keytab("frank")
    for config, text in (
        (client(servers, **with_keys(tmp_path / "none", "frank")), "none"),
        (client(servers, **with_keys(keytab, "unknown")), "unknown"),
        (client(servers, **with_keys(keytab, "frank"), **{"sasl.kerberos.service.name": "mail"}), "mail@localhost"),
    ):
        error = refusal(lambda c=config: user_of(c))  # type: ignore[misc]
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert text in str(error)


def test_a_kdc_that_does_not_answer_is_asked_again(
    kdc: Kdc, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keytab = kdc.keytab("judy")
    [closed] = free_ports(1)
    other = tmp_path / "krb5.conf"
    other.write_text(re.sub(r"kdc = .*", f"kdc = 127.0.0.1:{closed}", kdc.config.read_text()))
    config = client(broker.bootstrap_servers, **with_keys(keytab, "judy"))
    with monkeypatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(other))
        error = refusal(lambda: user_of({**config, "default.api.timeout.ms": 2_000}))
        assert error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "No Kerberos server answers" in str(error)
    assert user_of(config) == "User:judy"


def test_a_principal_without_a_user_name_is_refused(kdc: Kdc, node_keys: Path) -> None:
    rules = {"sasl.kerberos.principal.to.local.rules": "RULE:[2:$1]"}
    with EmbeddedBroker(node_settings(node_keys, **rules), listener="SASL_PLAINTEXT://localhost:0") as broker:
        error = refusal(lambda: user_of(client(broker.bootstrap_servers, **with_keys(kdc.keytab("grace"), "grace"))))
        assert error.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_session_is_renewed(kdc: Kdc, node_keys: Path) -> None:
    settings = node_settings(node_keys, **{"connections.max.reauth.ms": "1500"})
    with EmbeddedBroker(settings, listener="SASL_PLAINTEXT://localhost:0") as broker:
        config = client(broker.bootstrap_servers, **with_keys(kdc.keytab("heidi"), "heidi"))
        with Producer(config) as producer:
            for number in range(30):
                producer.send("t", b"%d" % number).result(60)
                producer.flush()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"listener.name.sasl_plaintext.gssapi.sasl.jaas.config": f"{_MODULE} useKeyTab=true;"}, "needs the path"),
        (
            {
                "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": f'{_MODULE} useKeyTab=true keyTab="/none"'
                ' principal="kafka/localhost";'
            },
            "ktadd -k FILE",
        ),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:[1:$2]"}, "must be"),
        ({"sasl.kerberos.service.name": ""}, "sasl.kerberos.service.name=kafka"),
    ],
)
def test_a_node_with_wrong_settings_does_not_start(
    kdc: Kdc, node_keys: Path, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        EmbeddedBroker(node_settings(node_keys, **change), listener="SASL_PLAINTEXT://localhost:0").start()


def test_three_nodes_authenticate_to_each_other(kdc: Kdc, tmp_path: Path) -> None:
    """Their advertised addresses are those of 127.0.0.1."""
    keys = kdc.keytab("kafka/127.0.0.1")
    settings = node_settings(keys, **{"default.replication.factor": "3", "min.insync.replicas": "3"})
    settings["listener.security.protocol.map"] = "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
    jaas = settings.pop("listener.name.sasl_plaintext.gssapi.sasl.jaas.config")
    settings["listener.name.plaintext.gssapi.sasl.jaas.config"] = jaas.replace("localhost", "127.0.0.1")
    lines = [f"{name}={value}" for name, value in settings.items()]
    with ClusterProcess(tmp_path, settings=lines) as cluster:
        config = client(cluster.bootstrap_servers, **with_keys(kdc.keytab("ivan"), "ivan"))
        with Admin(config) as admin:
            admin.create_topic("t", 3, 3)
        with Producer({**config, "acks": "all"}) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number).result(60)
