"""A record that is lost is never lost in silence: the asyncio and the blocking producer raise the same errors.

Errors that are known at once are raised by `send`. The others are in the future, reach the callback, and are raised by
`flush` and `close` unless somebody has retrieved them.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from barnabas import AsyncProducer, Producer
from barnabas.client.errors import (
    ClientClosedError,
    DeliveryFailedError,
    RequestTimeoutError,
    SerializationError,
    TransactionAbortedError,
)
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import end_txn, produce
from tests.unit.client.fake_cluster import SILENCE, FakeCluster, partitions_added


class Same:
    """One interface to both producers; every call runs to its end."""

    def __init__(self, kind: str, fake: FakeCluster, **settings: Any) -> None:
        self._runner = asyncio.Runner() if kind == "async" else None
        made = functools.partial(
            AsyncProducer if self._runner else Producer, cluster=fake.cluster(), **{"linger_ms": 0, **settings}
        )
        self.producer: Any = self._runner.run(_made(made)) if self._runner else made()

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        if self._runner is None:
            return getattr(self.producer, name)(*args, **options)
        return self._runner.run(getattr(self.producer, name)(*args, **options))

    def result(self, sent: Any) -> Any:
        return sent.result(10) if self._runner is None else self._runner.run(_result(sent))

    def end(self) -> None:
        try:
            self.call("close", 0)
        except DeliveryFailedError:
            pass
        finally:
            if self._runner is not None:
                self._runner.close()


async def _made(make: Callable[[], Any]) -> Any:
    return make()


async def _result(sent: Any) -> Any:
    return await sent


@pytest.fixture(params=["async", "blocking"])
def same(request: pytest.FixtureRequest) -> Any:
    made: list[Same] = []

    def make(fake: FakeCluster, **settings: Any) -> Same:
        made.append(Same(request.param, fake, **settings))
        return made[-1]

    yield make
    for one in made:
        one.end()


def refusing(code: ErrorCode, topics: tuple[str, ...] = ("t",)) -> FakeCluster:
    """A cluster that refuses every batch with this code."""
    fake = FakeCluster()
    for topic in topics:
        fake.add_topic(topic, 2)

    def refuse(broker: int, request: produce.ProduceRequest, version: int) -> produce.ProduceResponse:
        return produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        produce.PartitionProduceResponse(index=data.index, error_code=code)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    fake.scripts[ApiKey.PRODUCE] = refuse
    return fake


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"value": object()}, SerializationError, "give bytes or text"),
        ({"value": 7}, SerializationError, "A int cannot be sent to 't' as it is"),
        ({"key": 1.5}, SerializationError, "A float cannot be sent"),
        (
            {"headers": [("a", "text")]},
            SerializationError,
            r"pairs of a text and bytes \(or None\).*not \('a', 'text'\)",
        ),
        ({"headers": [b"a"]}, SerializationError, "The headers of a record for 't' are pairs"),
        ({"headers": 7}, (SerializationError, TypeError), "headers|iterable"),
        ({"headers": {"a": b"1"}}, SerializationError, "The headers of a record"),
        ({"timestamp": -1}, SerializationError, "not negative, not -1"),
        ({"timestamp": "now"}, SerializationError, "not 'now'"),
        ({"partition": 2}, KafkaError, "There is no partition 2 of 't'; it has 2 partitions"),
        ({"partition": -1}, KafkaError, "There is no partition -1"),
        ({"partition": "0"}, KafkaError, "There is no partition '0'"),
        ({"value": b"x" * 2_000_000}, KafkaError, r"larger than max\.request\.size"),
        ({"value": "x" * 2_000_000}, KafkaError, r"larger than max\.request\.size"),
    ],
)
def test_what_is_known_at_once_is_raised_by_send(same: Any, arguments: dict[str, Any], kind: Any, text: str) -> None:
    fake = FakeCluster()
    fake.add_topic("t", 2)
    one = same(fake)
    with pytest.raises(kind, match=text):
        one.call("send", "t", **{"value": b"v", **arguments})
    one.call("flush")  # what send has raised is not raised again
    assert one.result(one.call("send", "t", b"good")).offset == 0


@pytest.mark.parametrize("topic", ["", None, 7])
def test_a_topic_that_is_no_name_is_raised_by_send(same: Any, topic: Any) -> None:
    with pytest.raises(KafkaError, match="A topic is a text"):
        same(FakeCluster()).call("send", topic, b"v")


def test_a_topic_that_does_not_exist_is_raised_by_send_within_max_block_ms(same: Any) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    one = same(fake, max_block_ms=300)
    one.result(one.call("send", "t", b"v"))  # the connection is there, so that only the topic is missing
    with pytest.raises(KafkaError, match="There is no topic 'nowhere'"):
        one.call("send", "nowhere", b"v")


def test_a_topic_that_does_not_exist_is_named_when_the_broker_goes_away_before_the_deadline(same: Any) -> None:
    fake = FakeCluster()

    def go_away(broker: int, request: Any, version: int) -> None:
        if sum(key is ApiKey.METADATA for _, key, _ in fake.requests) == 2:
            fake.down.add(broker)

    fake.scripts[ApiKey.METADATA] = go_away
    with pytest.raises(KafkaError, match="There is no topic 'nowhere'") as caught:
        same(fake, max_block_ms=300).call("send", "nowhere", b"v")
    assert "none of bootstrap.servers fake:9001 answers" in str(caught.value.__cause__)


def test_a_serializer_that_returns_no_bytes_is_raised_by_send(same: Any) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    one = same(fake, value_serializer=lambda value: value)
    with pytest.raises(SerializationError, match="value serializer returned a int"):
        one.call("send", "t", 7)


@pytest.mark.parametrize("ending", ["flush", "close"])
def test_lost_records_are_raised_with_their_number_partition_and_first_error(same: Any, ending: str) -> None:
    one = same(refusing(ErrorCode.INVALID_RECORD))
    for _ in range(3):
        one.call("send", "t", b"v", partition=1)
    with pytest.raises(DeliveryFailedError, match=r"3 records were not delivered; the first, for t-1") as caught:
        one.call(ending)
    error = caught.value
    assert (error.count, error.partition, error.code) == (3, TopicPartition("t", 1), ErrorCode.INVALID_RECORD)
    assert error.__cause__ is error.first
    assert not error.retriable
    if ending == "flush":
        one.call("flush")  # raised once
    one.call("close")


def test_an_error_that_was_retrieved_is_not_raised_again(same: Any) -> None:
    one = same(refusing(ErrorCode.INVALID_RECORD))
    sent = one.call("send", "t", b"v")
    with pytest.raises(KafkaError):
        one.result(sent)
    one.call("flush")
    with pytest.raises(KafkaError):
        one.call("send_and_wait", "t", b"v")
    one.call("flush")
    got: list[BarnabasError | None] = []
    one.call("send", "t", b"v", on_delivery=lambda metadata, error: got.append(error))
    one.call("flush")
    assert [error.code for error in got if isinstance(error, KafkaError)] == [ErrorCode.INVALID_RECORD]
    one.call("close")


def test_only_the_records_that_nobody_looked_at_are_counted(same: Any) -> None:
    one = same(refusing(ErrorCode.INVALID_RECORD), linger_ms=50)
    sent = [one.call("send", "t", b"v", partition=0) for _ in range(5)]
    for record in sent[:2] * 2:
        with pytest.raises(KafkaError):
            one.result(record)
    with pytest.raises(DeliveryFailedError, match="3 records were not delivered"):
        one.call("flush")


def test_closing_in_time_raises_what_was_not_acknowledged(same: Any) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    one = same(fake)
    one.result(one.call("send", "t", b"good"))
    fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
    one.call("send", "t", b"lost")
    with pytest.raises(DeliveryFailedError, match=r"1 record was not delivered.*close waited \d+ ms") as caught:
        one.call("close", 10)
    assert isinstance(caught.value.first, ClientClosedError)
    one.call("close")  # closing twice does nothing
    for name in ("send", "send_and_wait"):
        with pytest.raises(ClientClosedError):
            one.call(name, "t", b"v")
    with pytest.raises(ClientClosedError):
        one.call("flush")


def test_a_flush_that_is_late_says_what_it_waited_for(same: Any) -> None:
    fake = FakeCluster()
    fake.add_topic("t")
    one = same(fake)
    one.result(one.call("send", "t", b"good"))
    fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
    one.call("send", "t", b"v")
    with pytest.raises(
        RequestTimeoutError, match=r"within \d+ ms: 1 records are not acknowledged yet, the first for t-0"
    ):
        one.call("flush", 20)
    with pytest.raises(TimeoutError):  # also Python's own class
        one.call("flush", 0)


def test_the_records_of_a_transaction_are_raised_by_its_commit(same: Any) -> None:
    """As in the Java producer: flush does not raise them, commit does, and abort drops them on purpose."""
    fake = refusing(ErrorCode.INVALID_RECORD)
    fake.scripts[ApiKey.ADD_PARTITIONS_TO_TXN] = partitions_added
    fake.scripts[ApiKey.END_TXN] = lambda *_: end_txn.EndTxnResponse()
    one = same(fake, transactional_id="tx")
    one.call("init_transactions")
    _begin(one)
    one.call("send", "t", b"v")
    one.call("flush")
    with pytest.raises(TransactionAbortedError):
        one.call("commit_transaction")
    one.call("abort_transaction")
    _begin(one)
    with pytest.raises(KafkaError, match=r"max\.request\.size"):
        one.call("send", "t", b"x" * 2_000_000)
    with pytest.raises(TransactionAbortedError):
        one.call("commit_transaction")
    one.call("abort_transaction")
    one.call("close")


def test_close_aborts_the_open_transaction(same: Any) -> None:
    """Otherwise read_committed consumers would wait for transaction.timeout.ms."""
    fake = FakeCluster()
    fake.add_topic("t", 2)
    ended: list[bool] = []

    def end(broker: int, request: Any, version: int) -> Any:
        ended.append(request.committed)
        return end_txn.EndTxnResponse()

    fake.scripts[ApiKey.ADD_PARTITIONS_TO_TXN] = partitions_added
    fake.scripts[ApiKey.END_TXN] = end
    one = same(fake, transactional_id="tx")
    one.call("init_transactions")
    _begin(one)
    one.result(one.call("send", "t", b"v"))
    one.call("close")
    assert ended == [False]
    with pytest.raises(ClientClosedError):
        one.call("abort_transaction")


def _begin(one: Same) -> None:
    one.producer.begin_transaction()


async def test_a_body_that_raises_keeps_its_error(caplog: pytest.LogCaptureFixture) -> None:
    fake = refusing(ErrorCode.INVALID_RECORD)
    with pytest.raises(ZeroDivisionError):
        async with AsyncProducer(cluster=fake.cluster(), linger_ms=0) as producer:
            await producer.send("t", b"v")
            raise ZeroDivisionError
    assert "1 record was not delivered" in caplog.text


def test_a_record_that_waits_in_vain_for_memory_is_raised_by_flush() -> None:
    """The blocking producer takes over a record before there is room for it."""
    fake = FakeCluster()
    fake.add_topic("t")
    settings: dict[str, Any] = {
        "cluster": fake.cluster(), "linger_ms": 0, "buffer_memory": 300, "batch_size": 100, "max_block_ms": 50,
    }  # fmt: skip
    producer = Producer(**settings)
    producer.send("t", b"good").result()
    fake.scripts[ApiKey.PRODUCE] = lambda *_: SILENCE
    got: list[BarnabasError | None] = []
    sent = [producer.send("t", b"x" * 200) for _ in range(4)]
    seen = producer.send("t", b"x" * 200, on_delivery=lambda metadata, error: got.append(error))
    with pytest.raises(KafkaError, match=r"buffer\.memory"):
        seen.result(10)
    assert [type(error).__name__ for error in got] == ["BufferFullError"]
    with pytest.raises(DeliveryFailedError, match="4 records were not delivered"):
        producer.close(10)
    assert all(record.done() for record in sent)
