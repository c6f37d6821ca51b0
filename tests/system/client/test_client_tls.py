"""The clients over TLS: trusted authorities, client certificates, and the errors when either is rejected."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, Producer, TopicPartition
from barnabas.client.cluster.connections import ClientErrors
from barnabas.client.errors import RequestTimeoutError, TlsError
from barnabas.core.config import ConfigError
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.transport.tls import handshake_error
from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.system.client.tls_proxy import PASSWORD, Authority, Identity, server_context, tls_broker

AUTHORITY = Authority("Barnabas tests")
STRANGER = Authority("somebody else")
SERVER = AUTHORITY.sign("localhost")
CLIENT = AUTHORITY.sign("client")


def trusting(authority: Authority, **more: Any) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.truststore.certificates": authority.pem, **more}


async def first_topic(servers: str, config: dict[str, Any]) -> None:
    async with AsyncAdmin({"bootstrap.servers": servers, **config}) as admin:
        await admin.create_topic("t", 1, 1)


async def test_small_and_large_records_round_trip_through_tls(tmp_path: Path) -> None:
    """A fetch of several megabytes, too: it is received where it stays, through TLS as without."""
    values = [b"small", bytes(range(256)) * 3_000, b"x" * 900_000, *[b"%d" % n for n in range(1_000)]]
    async with tls_broker(server_context(tmp_path, SERVER)) as servers:
        config = {"bootstrap.servers": servers, **trusting(AUTHORITY)}
        await first_topic(servers, trusting(AUTHORITY))
        async with AsyncProducer(config) as producer:
            for value in values:
                await producer.send("t", value)
        async with AsyncConsumer({**config, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            found: list[bytes] = []
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(10_000)]
    assert found == values


async def test_the_blocking_client_supports_tls(tmp_path: Path) -> None:
    async with tls_broker(server_context(tmp_path, SERVER)) as servers:
        await first_topic(servers, trusting(AUTHORITY))

        def send() -> int:
            with Producer({"bootstrap.servers": servers, **trusting(AUTHORITY)}) as producer:
                return producer.send_and_wait("t", b"v").offset

        assert await asyncio.to_thread(send) == 0


async def test_an_untrusted_authority_raises_tls_error(tmp_path: Path) -> None:
    async with tls_broker(server_context(tmp_path, SERVER)) as servers:
        with pytest.raises(TlsError, match=r"not trusted: .*ssl\.truststore\.location"):
            await first_topic(servers, trusting(STRANGER))


async def test_a_certificate_for_another_name_raises_tls_error(tmp_path: Path) -> None:
    other = AUTHORITY.sign("broker.example")
    async with tls_broker(server_context(tmp_path, other)) as servers:
        with pytest.raises(TlsError, match=r"for another name: .*ssl\.endpoint\.identification\.algorithm"):
            await first_topic(servers, trusting(AUTHORITY))
        await first_topic(servers, trusting(AUTHORITY, **{"ssl.endpoint.identification.algorithm": ""}))
        with pytest.raises(TlsError, match="not trusted"):  # any name, but not any authority
            await first_topic(servers, trusting(STRANGER, **{"ssl.endpoint.identification.algorithm": ""}))


def keystores(folder: Path) -> list[dict[str, str]]:
    """The ways to say which certificate is ours."""
    whole, certificate, key = folder / "whole.pem", folder / "certificate.pem", folder / "key.pem"
    whole.write_text(CLIENT.locked_key + CLIENT.certificate)
    certificate.write_text(CLIENT.certificate)
    key.write_text(CLIENT.key)
    return [
        {"ssl.keystore.location": str(whole), "ssl.keystore.type": "PEM", "ssl.key.password": PASSWORD},
        {"ssl.keystore.certificate.chain": CLIENT.certificate, "ssl.keystore.key": CLIENT.key},
        {
            "ssl.keystore.certificate.chain": CLIENT.certificate,
            "ssl.keystore.key": CLIENT.locked_key,
            "ssl.key.password": PASSWORD,
        },
        {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)},
    ]


async def test_client_certificates_are_accepted_in_every_form(tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text(AUTHORITY.pem)
    async with tls_broker(server_context(tmp_path, SERVER, client_authority=AUTHORITY)) as servers:
        for number, keystore in enumerate(keystores(tmp_path)):
            config = {"security.protocol": "SSL", "ssl.truststore.location": str(trust), **keystore}
            async with AsyncAdmin({"bootstrap.servers": servers, **config}) as admin:
                await admin.create_topic(f"t{number}", 1, 1)
        with pytest.raises(RequestTimeoutError, match=r"asks for certificates .* set ssl\.keystore\.location"):
            await first_topic(servers, trusting(AUTHORITY, **{"default.api.timeout.ms": 3_000}))


@pytest.mark.parametrize("ours", [None, STRANGER.sign("client")])
def test_a_tls_alert_about_the_client_certificate_raises_tls_error(tmp_path: Path, ours: Identity | None) -> None:
    """A handshake in memory, because asyncio's servers keep their reasons to themselves. Kafka's do not."""
    server = server_context(tmp_path, SERVER, client_authority=AUTHORITY)
    client = ssl.create_default_context(cadata=AUTHORITY.pem)
    if ours is not None:
        store = tmp_path / "ours.pem"
        store.write_text(ours.key + ours.certificate)
        client.load_cert_chain(store)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    here = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (there, here, there):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    with pytest.raises(ssl.SSLError):
        here.do_handshake()
    with pytest.raises(ssl.SSLError) as caught:
        there.read()
    error = handshake_error(Destination("localhost", 9092), caught.value, ClientErrors(()))
    assert isinstance(error, TlsError)
    assert not error.retriable
    assert str(error).startswith("localhost:9092 refused the TLS handshake: ")
    assert "ssl.keystore.location" in str(error)


@pytest.mark.parametrize(("protocols", "spoken"), [("TLSv1.2", "TLSv1.2"), ("TLSv1.2,TLSv1.3", "TLSv1.3")])
async def test_versions_of_tls(tmp_path: Path, protocols: str, spoken: str) -> None:
    seen: list[str | None] = []
    context = server_context(tmp_path, SERVER)

    class Noting(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            seen.append(self.version())

    context.sslobject_class = Noting
    async with tls_broker(context) as servers:
        await first_topic(servers, trusting(AUTHORITY, **{"ssl.enabled.protocols": protocols}))
    assert set(seen) == {spoken}


async def test_tls_to_a_listener_of_plain_text_and_the_reverse(tmp_path: Path) -> None:
    impatient = {"default.api.timeout.ms": 3_000, "request.timeout.ms": 3_000}
    async with AsyncEmbeddedBroker() as broker:
        with pytest.raises(RequestTimeoutError, match="Is this a TLS listener"):
            await first_topic(broker.bootstrap_servers, trusting(AUTHORITY, **impatient))
    async with tls_broker(server_context(tmp_path, SERVER)) as servers:
        with pytest.raises(RequestTimeoutError, match=r"closed the connection|security\.protocol"):
            await first_topic(servers, impatient)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"ssl.truststore.location": "/nowhere.pem"}, r"authorities to trust cannot be read.*PEM"),
        ({"ssl.truststore.certificates": "not pem"}, r"authorities to trust cannot be read.*PEM"),
        ({"ssl.keystore.type": "BKS"}, r"ssl\.keystore\.type=BKS is not supported; use PEM, PKCS12, JKS"),
        ({"ssl.keystore.key": CLIENT.key}, "go together"),
        (
            {"ssl.keystore.certificate.chain": CLIENT.certificate, "ssl.keystore.key": CLIENT.locked_key},
            r"own certificate and key cannot be read.*ssl\.key\.password",
        ),
        ({"ssl.enabled.protocols": "SSLv3"}, "use TLSv1.2 and TLSv1.3"),
    ],
)
async def test_unusable_tls_settings_raise_config_error(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await first_topic("127.0.0.1:1", {"security.protocol": "SSL", **settings})
