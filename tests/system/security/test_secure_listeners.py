"""A broker with TLS and SASL listeners: who gets in, as whom, and what garbage costs."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from barnabas.client.errors import TlsError
from barnabas.client.values import LATEST
from barnabas.core.errors import KafkaError
from barnabas.protocol.transport import secure_connection, unauthenticated
from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.system.client.tls_proxy import Authority, Identity

AUTHORITY = Authority("Barnabas tests")
STRANGER = Authority("somebody else")
SERVER = AUTHORITY.sign("localhost")
CLIENT = AUTHORITY.sign("client")
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="node" password="node-secret" user_node="node-secret" user_alice="alice-secret";'
)


def tls_settings(identity: Identity = SERVER, **more: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": identity.certificate,
        "ssl.keystore.key": identity.key,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": AUTHORITY.pem,
        **more,
    }


@asynccontextmanager
async def broker(listeners: str, settings: dict[str, str]) -> AsyncIterator[dict[str, str]]:
    """The addresses of a broker's listeners, by name. `listeners` is `NAME,NAME`."""
    texts = ",".join(f"{name}://localhost:0" for name in listeners.split(","))
    async with AsyncEmbeddedBroker(settings, listener=texts) as running:
        assert running.node is not None
        yield {endpoint.name: f"localhost:{endpoint.port}" for endpoint in running.node.endpoints}


def client(address: str, protocol: str, identity: Identity | None = None, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": address, "security.protocol": protocol, **more}
    if "SSL" in protocol:
        config["ssl.truststore.certificates"] = AUTHORITY.pem
    if identity is not None:
        config |= {"ssl.keystore.certificate.chain": identity.certificate, "ssl.keystore.key": identity.key}
    return config


async def round_trip(config: dict[str, Any], topic: str = "t") -> None:
    """Create a topic, write to it and read from it."""
    async with AsyncAdmin(config) as admin:
        await admin.create_topic(topic, 1, 1)
    values = [b"small", bytes(range(256)) * 3_000]
    async with AsyncProducer(config) as producer:
        for value in values:
            await producer.send(topic, value)
    async with AsyncConsumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [record.value for record in await consumer.poll(10_000)]
    assert found == values


async def test_tls_without_client_certificates() -> None:
    async with broker("SSL", tls_settings()) as addresses:
        await round_trip(client(addresses["SSL"], "SSL"))


async def test_a_required_client_certificate() -> None:
    async with broker("SSL", tls_settings(**{"ssl.client.auth": "required"})) as addresses:
        await round_trip(client(addresses["SSL"], "SSL", CLIENT))
        for identity in (None, STRANGER.sign("client")):
            with pytest.raises(TlsError):
                async with AsyncAdmin(
                    client(addresses["SSL"], "SSL", identity, **{"request.timeout.ms": 3000})
                ) as admin:
                    await admin.list_topics()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_plain(protocol: str) -> None:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": PLAIN_USERS,
        **tls_settings(),
    }
    async with broker(protocol, settings) as addresses:
        config = client(addresses[protocol], protocol, **{"sasl.mechanism": "PLAIN", "sasl.username": "alice"})
        await round_trip({**config, "sasl.password": "alice-secret"})
        with pytest.raises(KafkaError, match="Invalid username or password"):
            async with AsyncAdmin({**config, "sasl.password": "wrong"}) as admin:
                await admin.list_topics()


async def test_garbage_and_silence_on_a_tls_port_do_not_disturb_other_clients() -> None:
    async with broker("SSL,PLAINTEXT", tls_settings()) as addresses:
        host, _, port = addresses["SSL"].partition(":")
        writers = []
        for data in (
            b"",
            b"\x16\x03\x01",
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">ihhih", 10, 18, 0, 1, -1),
            b"\0" * 4096,
        ):
            for _ in range(10):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(data)
                await writer.drain()
                if not data.startswith(b"\x16") and data:
                    assert len(await reader.read(1000)) < 50  # at most a TLS alert
                writers.append(writer)
        await round_trip(client(addresses["SSL"], "SSL"))
        for writer in writers:
            writer.close()


async def test_a_changed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "server.pem"
    store.write_text(SERVER.key + SERVER.certificate)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    async with broker("SSL", settings) as addresses:
        config = client(addresses["SSL"], "SSL")
        async with AsyncAdmin(config) as admin:
            await admin.list_topics()
            other = STRANGER.sign("localhost")
            store.write_text(other.key + other.certificate)
            await asyncio.sleep(1.1)  # the files are looked at every second
            with pytest.raises(TlsError):
                async with AsyncAdmin(config) as late:
                    await late.list_topics()
            await admin.list_topics()  # an open connection keeps its certificate


async def test_handshakes_are_limited_in_number_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that begin handshakes and do not end them: the first are closed at the deadline, the surplus at once."""
    monkeypatch.setattr(secure_connection, "CONNECTIONS_MAX", 5)
    monkeypatch.setattr(unauthenticated, "TIME_TO_AUTHENTICATE_S", 100.0)
    monkeypatch.setattr(secure_connection, "HANDSHAKE_S", 1.0)
    async with broker("SSL", tls_settings()) as addresses:
        host, _, port = addresses["SSL"].partition(":")
        loop = asyncio.get_running_loop()
        began = loop.time()
        slow = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        for _, writer in slow:
            writer.write(b"\x16\x03\x01")
        surplus = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        for reader, _ in surplus:
            assert await reader.read(1) == b""
        for reader, _ in slow:
            assert await reader.read(1) == b""
        assert loop.time() - began >= 1.0
        for _, writer in (*slow, *surplus):
            writer.close()
        await round_trip(client(addresses["SSL"], "SSL"))


async def test_our_clients_renew_their_sessions_while_they_write() -> None:
    """connections.max.reauth.ms is 1.2 s: no request fails, and the connection stays the same."""
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "connections.max.reauth.ms": "1200",
    }
    async with broker("SASL_PLAINTEXT", settings) as addresses:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"}
        config = client(addresses["SASL_PLAINTEXT"], "SASL_PLAINTEXT", **login)
        async with AsyncAdmin(config) as admin, AsyncProducer({**config, "retries": 0}) as producer:
            await admin.create_topic("t", 1, 1)
            loop = asyncio.get_running_loop()
            end, sent = loop.time() + 4.0, 0
            while loop.time() < end:
                await asyncio.gather(*[producer.send_and_wait("t", b"v") for _ in range(20)])
                sent += 20
            offsets = await admin.list_offsets({TopicPartition("t", 0): LATEST})
            (latest,) = offsets.values()
            assert not isinstance(latest, KafkaError)
            assert latest.offset == sent


async def test_a_tls_connection_above_the_limit_is_served_when_another_one_ends() -> None:
    async with broker("SSL", tls_settings(**{"max.connections": "1"})) as addresses:
        host, _, port = addresses["SSL"].rpartition(":")
        context = ssl.create_default_context(cadata=AUTHORITY.pem)
        _, first = await asyncio.open_connection(host, int(port), ssl=context)
        second = asyncio.ensure_future(asyncio.open_connection(host, int(port), ssl=context))
        done, _ = await asyncio.wait((second,), timeout=0.3)
        assert not done, "its handshake does not begin"
        first.close()
        _, writer = await asyncio.wait_for(second, 60)
        writer.close()
