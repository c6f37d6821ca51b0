"""The source of a cluster link over real connections: a broker in this process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from barnabas.client.admin import AsyncAdmin, NewTopic
from barnabas.client.producer.producer import AsyncProducer
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.security.config import SaslConfig, SecurityConfig
from barnabas.protocol.transport.connection_config import Destination
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey
from barnabas.protocol.wire.schema import Request, Response
from barnabas.server.links.fetching.ports import SourceCall, SourceFetch, SourcePartition
from barnabas.server.links.fetching.settings import LinkSettings, link_settings
from barnabas.server.links.fetching.values import LinkDefinition
from barnabas.server.links.source import LinkSource
from barnabas.server.node.links import open_source, parse_servers
from barnabas.server.node.setup.link_security import link_security
from barnabas.server.replication.ports import LogBounds
from barnabas.server.storage.values import EpochEndOffset
from barnabas.testing.embedded import AsyncEmbeddedBroker

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="secret" user_alice="secret";'
)


def with_source(main: Callable[[LinkSource, str], Awaitable[None]]) -> None:
    """Run `main` with the bootstrap servers of a broker whose topic `t` has three records, and a source for it."""

    async def run() -> None:
        async with AsyncEmbeddedBroker() as broker:
            servers = broker.bootstrap_servers
            async with AsyncAdmin(bootstrap_servers=servers) as admin:
                await admin.create_topics([NewTopic("t", 1)])
            async with AsyncProducer(bootstrap_servers=servers) as producer:
                for value in (b"a", b"b", b"c"):
                    await producer.send_and_wait("t", value)
            source = open_source(LinkDefinition("dr", servers), 1, random.Random(1))
            running = asyncio.ensure_future(source.run())
            await asyncio.sleep(0)
            try:
                await main(source, servers)
            finally:
                running.cancel()

    asyncio.run(run())


def test_a_source_answers_metadata_offsets_and_fetches_in_a_session() -> None:
    async def main(source: LinkSource, servers: str) -> None:
        topics = await source.topics(["t", "missing"])
        assert topics["missing"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = topics["t"]
        (node_id,) = {p.leader for p in found.partitions.values()}
        assert found.partitions == {0: SourcePartition(node_id, 0)}
        assert source.cluster_id is not None
        assert await source.bounds(node_id, ("t", 0), 0) == LogBounds(ErrorCode.NONE, 0, 3)
        assert await source.epoch_end(node_id, ("t", 0), 0, 0) == EpochEndOffset(0, 3)
        assert await source.reports_divergence(node_id)
        want = SourceFetch(found.topic_id, 0, 1, 0)
        for topic_id in (found.topic_id, None):  # a source without topic ids is asked by name
            call = SourceCall(0, 0, [(("t", 0), want)], [], topic_id is not None)
            reply = await source.fetch(node_id, 0, call, LinkSettings())
            assert (reply.error, reply.session_id > 0) == (ErrorCode.NONE, True)
            (partition,) = reply.partitions
            assert (partition.key, partition.error, partition.high_watermark) == (("t", 0), ErrorCode.NONE, 3)
            assert [header.base_offset for _, header in iter_batches(partition.records)] == [1, 2]
        forget = SourceCall(reply.session_id, 1, [], [(("t", 0), want)], False)
        quick = link_settings({"mirror.fetch.wait.max.ms": "1"})
        assert (await source.fetch(node_id, 0, forget, quick)).partitions == []

    with_source(main)


def test_a_broker_that_is_unknown_or_away_is_an_error() -> None:
    async def main(source: LinkSource, servers: str) -> None:
        with pytest.raises(KafkaError) as raised:
            await source.bounds(99, ("t", 0), 0)
        assert raised.value.code is ErrorCode.BROKER_NOT_AVAILABLE

    with_source(main)


def test_the_settings_of_a_connection_are_those_of_kafkas_clients() -> None:
    assert link_security({}) == SecurityConfig()
    secure = link_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": JAAS,
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert secure.sasl == SaslConfig("PLAIN", "alice", "secret")
    assert secure.tls is not None
    assert (secure.tls.ssl_truststore_location, secure.tls.verify_host_name) == ("/ca.pem", False)


@pytest.mark.parametrize(
    ("client", "problem"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS is not one of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "needs a user"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "MD5"}, "not supported"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.kerberos.service.name"),
    ],
)
def test_wrong_settings_of_a_connection_are_refused(client: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        link_security(client)


def test_bootstrap_servers_and_settings_are_parsed() -> None:
    assert parse_servers("a:1, [::1]:9092") == [("a", 1), ("::1", 9092)]
    for wrong in ("", "a", "a:x", "a:99999"):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
            parse_servers(wrong)
    assert link_settings({"mirror.fetch.max.bytes": "5", "other": "x"}) == LinkSettings(mirror_fetch_max_bytes=5)
    with pytest.raises(ConfigError, match="positive number"):
        link_settings({"mirror.fetch.max.bytes": "-1"})


def test_a_broker_with_a_login_serves_a_link_that_has_one() -> None:
    async def run() -> None:
        config = {
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        }
        listeners = "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"
        async with AsyncEmbeddedBroker(config, listener=listeners) as broker:
            assert broker.node is not None
            port = next(point.port for point in broker.node.endpoints if point.name == "SASL_PLAINTEXT")
            client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}
            source = open_source(LinkDefinition("dr", f"127.0.0.1:{port}", client), 1, random.Random(1))
            running = asyncio.ensure_future(source.run())
            await asyncio.sleep(0)
            try:
                assert (await source.topics(["t"]))["t"].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            finally:
                running.cancel()

    asyncio.run(run())


class EmptyAnswers:
    """Connections to a source that answers every request, but for no topic."""

    async def run(self) -> None: ...

    async def connection(self, to: Destination, deadline: float) -> EmptyAnswers:
        return self

    def choose_version(self, key: ApiKey, *, max_version: int | None = None) -> int:
        return APIS[key].max_version

    async def wait_writable(self, deadline: float) -> None: ...

    async def send(self, message: Request, version: int, deadline: float | None = None) -> Response:
        return APIS[API_KEYS[message.__schema__.key]].response()


def test_an_answer_without_the_requested_partition_is_a_kafka_error() -> None:
    async def main() -> None:
        source = LinkSource([("source", 9092)], EmptyAnswers(), 1000, random.Random(1))
        source._brokers = {1: ("source", 9092)}
        for answer in (source.bounds(1, ("t", 0), 0), source.epoch_end(1, ("t", 0), 0, 0)):
            with pytest.raises(KafkaError, match="does not have the requested partition"):
                await answer

    asyncio.run(main())
