"""Two-phase commit (KIP-939): a prepared transaction survives its producer; who knows the outcome completes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking_producer import Producer
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import TransactionStateError
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.values import HandedOverTransaction, NewTopic, PreparedTransaction
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def two_phase() -> Iterator[str]:
    with EmbeddedBroker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


async def committed(servers: str, topic: str) -> list[bytes]:
    consumer = AsyncConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed")
    async with consumer:
        zero = TopicPartition(topic, 0)
        consumer.assign([zero])
        end = (await consumer.end_offsets([zero]))[zero]
        values: list[bytes] = []
        while await consumer.position(zero) < end:
            values += [record.value for record in await consumer.poll(1_000)]
        return values


@pytest.mark.parametrize("decision", ["commit", "abort"])
async def test_a_prepared_transaction_survives_its_producer(two_phase: str, decision: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    async with AsyncAdmin(bootstrap_servers=two_phase) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    settings: dict[str, object] = {
        "bootstrap.servers": two_phase,
        "transactional.id": topic,
        "transaction.two.phase.commit.enable": True,
    }
    crashed = AsyncProducer(settings)
    await crashed.init_transactions()
    crashed.begin_transaction()
    await crashed.send(topic, b"prepared")
    kept = str(await crashed.prepare_transaction())
    with pytest.raises(TransactionStateError, match="holding a prepared transaction"):
        await crashed.send(topic, b"too late")
    assert await committed(two_phase, topic) == []

    async with AsyncProducer(settings) as heir:
        await heir.init_transactions(keep_prepared=True)
        assert str(heir.prepared_transaction) == kept
        with pytest.raises(TransactionStateError):
            heir.begin_transaction()
        decided = PreparedTransaction.parse(kept if decision == "commit" else "1:1")
        assert await heir.complete_transaction(decided) is (decision == "commit")
        with pytest.raises(TransactionStateError, match="No transaction is prepared"):
            await heir.complete_transaction(decided)
        async with heir.transaction():
            await heir.send(topic, b"next")
    assert await committed(two_phase, topic) == ([b"prepared"] if decision == "commit" else []) + [b"next"]
    with pytest.raises(KafkaError) as fenced:
        await crashed.commit_transaction()
    assert fenced.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
    await crashed.close()


@pytest.mark.parametrize("two_phase_commit", [True, False])
async def test_a_transaction_is_ended_by_another_client(two_phase: str, two_phase_commit: bool) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    settings: dict[str, object] = {"bootstrap.servers": two_phase}

    async def begun(name: str, value: bytes) -> HandedOverTransaction:
        more = {"transactional.id": f"{topic}.{name}", "transaction.two.phase.commit.enable": two_phase_commit}
        async with AsyncProducer({**settings, **more}) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(topic, value)
            handed_over = await producer.hand_over_transaction()
            assert handed_over is not None
            with pytest.raises(TransactionStateError, match="handed over"):
                await producer.send(topic, b"too late")
            return handed_over  # closing the producer does not end the transaction

    async with AsyncAdmin(settings) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        kept, dropped = await begun("a", b"kept"), await begun("b", b"dropped")
        listed = await admin.list_transactions(states=["Ongoing"])
        assert [t.transactional_id for t in listed if t.transactional_id.startswith(topic)] == [
            f"{topic}.a",
            f"{topic}.b",
        ]
        for _ in range(2):  # the same outcome may be requested again
            await admin.end_transaction(kept, commit=True)
            await admin.end_transaction(dropped, commit=False)
        assert await committed(two_phase, topic) == [b"kept"]
        fenced = await begun("c", b"fenced")
        await admin.fence_producer(fenced.transactional_id)
        unknown = HandedOverTransaction(f"{topic}.never", 1_000_000, 0)
        for gone in (replace(kept, epoch=kept.epoch - 1), dropped, fenced, unknown):
            with pytest.raises(KafkaError) as error:
                await admin.end_transaction(gone, commit=True)
            assert error.value.code in (
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.INVALID_PRODUCER_EPOCH,
                ErrorCode.INVALID_TXN_STATE,
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
        assert await committed(two_phase, topic) == [b"kept"]


async def test_a_transaction_without_records_is_not_handed_over(two_phase: str) -> None:
    async with AsyncProducer(bootstrap_servers=two_phase, transactional_id=f"t-{uuid4().hex[:8]}") as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        assert await producer.hand_over_transaction() is None


def test_blocking_producer_completes_a_prepared_transaction(two_phase: str) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    with Producer(
        bootstrap_servers=two_phase, transactional_id=topic, transaction_two_phase_commit_enable=True
    ) as producer:
        producer.init_transactions(keep_prepared=True)
        assert producer.prepared_transaction is None
        producer.begin_transaction()
        producer.send(topic, b"x")
        kept = producer.prepare_transaction()
        assert producer.complete_transaction(kept)


def test_two_phase_commit_rejects_incompatible_settings() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        AsyncProducer(bootstrap_servers="x:1", transaction_two_phase_commit_enable=True)
    with pytest.raises(ConfigError, match="as long as it takes"):
        AsyncProducer(
            bootstrap_servers="x:1",
            transactional_id="t",
            transaction_two_phase_commit_enable=True,
            transaction_timeout_ms=1_000,
        )


async def test_broker_without_two_phase_commit_rejects_it(servers: str) -> None:
    settings = {"bootstrap.servers": servers, "transactional.id": f"t-{uuid4().hex[:8]}"}
    async with AsyncProducer({**settings, "transaction.two.phase.commit.enable": True}) as producer:
        with pytest.raises(KafkaError):
            await producer.init_transactions()
    async with AsyncProducer(settings) as producer:
        await producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ConfigError, match=r"transaction\.two\.phase\.commit\.enable"):
            await producer.prepare_transaction()
