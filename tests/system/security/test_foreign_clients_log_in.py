"""librdkafka, kafka-python and aiokafka over TLS with certificates, PLAIN and SCRAM."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.security.test_secure_listeners import AUTHORITY, CLIENT, PLAIN_USERS, tls_settings

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    "listener.security.protocol.map": "CERTIFICATES:SSL,USERS:SASL_SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "CERTIFICATES",
    "listener.name.certificates.ssl.client.auth": "required",
    "listener.name.users.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.users.plain.sasl.jaas.config": PLAIN_USERS,
    "listener.name.users.connections.max.reauth.ms": "1500",
}


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """The addresses of the listeners. The user alice has a password for each mechanism."""
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    listeners = "CERTIFICATES://localhost:0,USERS://localhost:0"
    with EmbeddedBroker({**tls_settings(), **SETTINGS}, listener=listeners) as broker:
        assert broker.node is not None
        found = {endpoint.name: f"localhost:{endpoint.port}" for endpoint in broker.node.endpoints}
        admin = AdminClient(librdkafka(found, None))
        changes = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"alice-secret")
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for change in changes:
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(20)
        described = admin.describe_user_scram_credentials(["alice"])["alice"].result(20)
        assert [info.iterations for info in described.scram_credential_infos] == [4096, 4096]
        yield found


def librdkafka(addresses: dict[str, str], mechanism: str | None, password: str = "alice-secret") -> dict[str, Any]:
    if mechanism is None:
        return {
            "bootstrap.servers": addresses["CERTIFICATES"],
            "security.protocol": "SSL",
            "ssl.ca.pem": AUTHORITY.pem,
            "ssl.certificate.pem": CLIENT.certificate,
            "ssl.key.pem": CLIENT.key,
        }
    return {
        "bootstrap.servers": addresses["USERS"],
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": AUTHORITY.pem,
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_librdkafka_writes_and_reads(addresses: dict[str, str], mechanism: str | None) -> None:
    from confluent_kafka import Consumer, Producer

    config = librdkafka(addresses, mechanism)
    topic = f"t-{uuid4().hex[:8]}"
    producer = Producer(config)
    values = [b"v%d" % number for number in range(100)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < len(values):
        for message in consumer.consume(100, 10):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    assert found == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_a_wrong_password_learns_that_authentication_failed(
    addresses: dict[str, str], mechanism: str
) -> None:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    errors: list[int] = []
    admin = AdminClient({**librdkafka(addresses, mechanism, "wrong"), "error_cb": lambda e: errors.append(e.code())})
    for _ in range(200):
        admin.poll(0.1)
        if KafkaError._AUTHENTICATION in errors:
            return
    raise AssertionError(errors)


def test_librdkafka_authenticates_anew_while_it_writes(addresses: dict[str, str]) -> None:
    """connections.max.reauth.ms is 1.5 s: a producer that writes for five seconds loses no record and sees no error."""
    from confluent_kafka import Producer

    errors: list[Any] = []
    producer = Producer({**librdkafka(addresses, "SCRAM-SHA-512"), "error_cb": errors.append, "linger.ms": 0})
    topic, failed = f"t-{uuid4().hex[:8]}", []
    for _ in range(500):
        producer.produce(topic, b"v", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.01)
    assert producer.flush(60) == 0
    assert not failed
    assert not errors


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_kafka_python_writes(addresses: dict[str, str], mechanism: str | None, tmp_path: Path) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(**_python(addresses, mechanism, tmp_path))
    try:
        assert producer.send(f"t-{uuid4().hex[:8]}", b"v").get(30).offset == 0
    finally:
        producer.close(10)


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_aiokafka_writes(addresses: dict[str, str], mechanism: str | None, tmp_path: Path) -> None:
    from aiokafka import AIOKafkaProducer

    async def main() -> int:
        async with AIOKafkaProducer(**_python(addresses, mechanism, tmp_path)) as producer:
            return int((await producer.send_and_wait(f"t-{uuid4().hex[:8]}", b"v")).offset)

    assert asyncio.run(main()) == 0


def _python(addresses: dict[str, str], mechanism: str | None, folder: Path) -> dict[str, Any]:
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    if mechanism is None:
        store = folder / "client.pem"
        store.write_text(CLIENT.key + CLIENT.certificate)
        context.load_cert_chain(store)
        servers = addresses["CERTIFICATES"]
        return {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_context": context}
    return {
        "bootstrap_servers": addresses["USERS"],
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
