"""GSSAPI between Java and Python: Kafka's tools log in to our broker, and our client logs in to Apache Kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.testing import EmbeddedBroker
from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import ApacheKafka
from tests.system.security.kdc import NEEDS_KERBEROS, REALM, Kdc

pytestmark = [
    pytest.mark.interop,
    *NEEDS_KERBEROS,
]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with pytest.MonkeyPatch.context() as patch, Kdc(tmp_path_factory.mktemp("kdc")) as running:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={running.config}")
        yield running


def jaas(keytab: Path, principal: str) -> str:
    return (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{keytab}" principal="{principal}@{REALM}";'
    )


def client(keytab: Path, principal: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas(keytab, principal),
    }


@pytest.fixture(scope="module")
def listener(kdc: Kdc) -> dict[str, str]:
    """The settings of a broker's listener, for both brokers."""
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.secure.gssapi.sasl.jaas.config": jaas(kdc.keytab("kafka/localhost"), "kafka/localhost"),
        "delegation.token.secret.key": "key",
    }


def test_tools_of_kafka_log_in_to_our_broker(kdc: Kdc, listener: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{k}={v}\n" for k, v in client(kdc.keytab("alice"), "alice").items()))
    kafka = ApacheKafka(tmp_path)
    with EmbeddedBroker(listener, listener="SECURE://localhost:0,PLAINTEXT://127.0.0.1:0") as broker:
        assert broker.node is not None
        port = next(point.port for point in broker.node.endpoints if point.name == "SECURE")
        places = ("--bootstrap-server", f"localhost:{port}", "--command-config", str(config))
        kafka.tool("org.apache.kafka.tools.TopicCommand", *places, "--create", "--topic", "by-java")
        made = kafka.tool(
            "org.apache.kafka.tools.DelegationTokenCommand", *places, "--create", "--max-life-time-period", "-1"
        )
        assert "User:alice" in made


def test_librdkafka_writes_and_reads(kdc: Kdc, listener: dict[str, str]) -> None:
    """kcat with Debian's librdkafka, which uses Cyrus SASL. confluent-kafka's wheel is built without it."""
    from confluent_kafka import KafkaException, Producer

    with pytest.raises(KafkaException, match="No provider for SASL mechanism GSSAPI"):
        Producer({"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"})
    with EmbeddedBroker(listener, listener="SECURE://localhost:0,PLAINTEXT://127.0.0.1:0") as broker:
        assert broker.node is not None
        port = next(point.port for point in broker.node.endpoints if point.name == "SECURE")
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.keytab": str(kdc.keytab("kate")),
            "sasl.kerberos.principal": f"kate@{REALM}",
        }
        kcat = ["kcat", "-b", f"localhost:{port}", "-t", "by-kcat", "-q"]
        for name, value in settings.items():
            kcat += ["-X", f"{name}={value}"]
        written = subprocess.run([*kcat, "-P"], input=b"one\ntwo\n", capture_output=True, timeout=60, check=False)
        assert written.returncode == 0, written.stderr.decode()
        read = subprocess.run([*kcat, "-C", "-e"], capture_output=True, timeout=60, check=False)
        assert (read.returncode, read.stdout) == (0, b"one\ntwo\n"), read.stderr.decode()


def test_our_client_logs_in_to_kafka(kdc: Kdc, listener: dict[str, str], tmp_path: Path) -> None:
    [port] = free_ports(1)
    lines = [f"{name}={value}" for name, value in listener.items()]
    with (
        ApacheKafka(tmp_path, lines, more_listeners=[f"SECURE://localhost:{port}"]).running(),
        Admin({"bootstrap.servers": f"localhost:{port}", **client(kdc.keytab("bob"), "bob")}) as admin,
    ):
        assert str(admin.create_delegation_token().owner) == "User:bob"
