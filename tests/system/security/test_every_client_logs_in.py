"""Each of our clients logs in with each mechanism that needs no other server, and is refused with a wrong password.

`test_oauth_log_in.py` and `test_kerberos.py` have tokens of a provider, and tickets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition
from barnabas.client.admin.users import UserScramCredentialUpsertion
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.errors import BarnabasError
from barnabas.registry.server import RegistryServer
from barnabas.spark.connection import LogClient
from barnabas.spark.sink.options import SinkOptions
from barnabas.spark.sink.rows import RowLayout
from barnabas.spark.sink.tasks import write_rows
from tests.system.security.test_secure_listeners import broker

pytestmark = pytest.mark.system
Config = dict[str, Any]

TOPIC, GROUP = "t", "g"
PASSWORD = "alice-secret"
_KAFKA = "org.apache.kafka.common.security"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "inter.broker.listener.name": "PLAINTEXT",
    "delegation.token.secret.key": "the key of the tokens",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{_KAFKA}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        f'{_KAFKA}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="node";'
    ),
}


async def produce(config: Config) -> None:
    async with AsyncProducer(config) as producer:
        await producer.send(TOPIC, b"value")


async def consume(config: Config) -> None:
    async with AsyncConsumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        while not await consumer.poll(5_000):
            pass


async def share(config: Config) -> None:
    async with AsyncShareConsumer({**config, "group.id": GROUP}) as consumer:
        consumer.subscribe([TOPIC])
        while not await consumer.poll(5_000):
            pass


async def administrate(config: Config) -> None:
    async with AsyncAdmin(config) as admin:
        assert TOPIC in {topic.name for topic in await admin.list_topics()}


async def registry(config: Config) -> None:
    server = RegistryServer(config, listener="http://127.0.0.1:0")
    await server.run(on_ready=lambda running: running.stop())


async def spark_reader(config: Config) -> None:
    def read() -> None:
        client = LogClient({name: str(value) for name, value in config.items()})
        try:
            client.reach()
        finally:
            client.close()

    await asyncio.to_thread(read)


async def spark_writer(config: Config) -> None:
    layout = RowLayout(TOPIC, has_key=False, has_partition=False, has_headers=False)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"value"])})
    options = SinkOptions({name: str(value) for name, value in config.items()}, TOPIC)
    await asyncio.to_thread(write_rows, iter([rows]), options, layout)


CLIENTS: tuple[Callable[[Config], Awaitable[None]], ...] = (
    produce,
    consume,
    share,
    administrate,
    registry,
    spark_reader,
    spark_writer,
)


async def logins(plaintext: str, sasl: str) -> dict[str, Config]:
    """The settings of a client with each mechanism. The user gets passwords for SCRAM, and a token."""
    base = {"bootstrap.servers": sasl, "security.protocol": "SASL_PLAINTEXT", "request.timeout.ms": 5_000}
    password = {"sasl.username": "alice", "sasl.password": PASSWORD}
    found: dict[str, Config] = {
        name: {**base, "sasl.mechanism": name, **password} for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    async with AsyncAdmin({"bootstrap.servers": plaintext}) as admin:
        await admin.create_topic(TOPIC, 1, 1)
        changes = [ConfigChange("share.auto.offset.reset", "earliest")]
        await admin.incremental_alter_configs({ConfigResource.group(GROUP): changes})
        set_all = [UserScramCredentialUpsertion("alice", f"SCRAM-SHA-{bits}", PASSWORD) for bits in (256, 512)]
        assert await admin.alter_user_scram_credentials(set_all) == {"alice": None}
    async with AsyncAdmin(found["PLAIN"]) as admin:
        token = await admin.create_delegation_token()
    found["token"] = {**base, "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": token.jaas_config}
    unsecured = f'{_KAFKA}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
    found["OAUTHBEARER"] = {**base, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": unsecured}
    return found


async def test_every_client_with_every_mechanism() -> None:
    failed = []
    async with broker("PLAINTEXT,SASL_PLAINTEXT", SETTINGS) as addresses:
        for mechanism, config in (await logins(addresses["PLAINTEXT"], addresses["SASL_PLAINTEXT"])).items():
            for client in CLIENTS:
                try:
                    await client(config)
                except (BarnabasError, ExceptionGroup, TimeoutError) as error:
                    failed.append(f"{client.__name__} with {mechanism}: {error!r}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_no_client_logs_in_with_a_wrong_password_or_shows_it(mechanism: str) -> None:
    async with broker("PLAINTEXT,SASL_PLAINTEXT", SETTINGS) as addresses:
        config = (await logins(addresses["PLAINTEXT"], addresses["SASL_PLAINTEXT"]))[mechanism]
        for client in CLIENTS:
            with pytest.raises((BarnabasError, ExceptionGroup)) as raised:
                await client({**config, "sasl.password": "pl4nted"})
            assert "pl4nted" not in repr(raised.value) + str(raised.value), client.__name__
            assert "uthentication" in repr(raised.value), client.__name__
