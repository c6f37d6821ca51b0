"""What counts as consumed: loops that are left, exceptions, calls that are cancelled or interrupted, `close`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import pytest

from barnabas import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, RebalanceListener, ShareConsumer
from barnabas.client.errors import ClientClosedError, TransactionStateError, WakeupError
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.ids import TopicPartition
from barnabas.testing.embedded import EmbeddedBroker

COUNT: Final = 20
T0: Final = TopicPartition("t", 0)


class BoomError(Exception):
    """The program's own error."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    quick = {
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "50",
        "group.consumer.assignment.interval.ms": "0",
    }
    with EmbeddedBroker(quick) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 1)
            admin.create_topic("empty", 1)
            admin.create_topic("two", 2)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number, partition=0)
        yield broker.bootstrap_servers


@pytest.fixture
def settings(servers: str, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A consumer that reads the topic from its start, in a group of its own."""
    return {"bootstrap.servers": servers, "group.id": request.node.name, "auto.offset.reset": "earliest"}


def committed(settings: dict[str, Any]) -> int | None:
    with Admin(bootstrap_servers=settings["bootstrap.servers"]) as admin:
        found = admin.list_group_offsets(settings["group.id"])
    return found[T0].offset if T0 in found else None


# -- loops -------------------------------------------------------------------------------------------------------------


def test_a_loop_that_is_left_continues_with_the_next_record(settings: dict[str, Any]) -> None:
    with Consumer(settings) as consumer:
        consumer.subscribe(["t"])
        seen = []
        for _ in range(3):
            for record in consumer:
                seen.append(record.offset)
                break
        seen += [record.offset for record in consumer.poll(1_000, max_records=2)]
        seen.append(consumer.getone().offset)
        assert (seen, consumer.position(T0)) == ([0, 1, 2, 3, 4, 5], 6)
    assert committed(settings) == 6


@pytest.mark.parametrize("closes", ["with", "finally"])
def test_an_exception_in_the_body_returns_its_record_again(settings: dict[str, Any], closes: str) -> None:
    def run(consumer: Consumer) -> None:
        consumer.subscribe(["t"])
        for record in consumer:
            if record.offset == 3:
                raise BoomError

    with pytest.raises(BoomError):
        if closes == "with":
            with Consumer(settings) as consumer:
                run(consumer)
        else:
            consumer = Consumer(settings)
            try:
                run(consumer)
            finally:
                consumer.close()
    assert committed(settings) == 3


def test_a_batch_whose_processing_fails_is_returned_again(settings: dict[str, Any]) -> None:
    with pytest.raises(BoomError), Consumer(settings) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(1_000, max_records=5)
        if consumer.poll(1_000, max_records=5):
            raise BoomError
    assert committed(settings) == 5


def test_commit_commits_the_record_in_hand_and_no_more(settings: dict[str, Any]) -> None:
    with pytest.raises(BoomError), Consumer(settings, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        for record in consumer:
            if record.offset == 3:
                raise BoomError
            consumer.commit()
    assert committed(settings) == 3


def test_a_loop_that_goes_on_is_not_consumed_by_close(settings: dict[str, Any]) -> None:
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    for record in consumer:
        if record.offset == 2:
            consumer.close()  # as a signal handler would
    assert committed(settings) == 2


def test_a_record_behind_a_seek_in_the_loop_is_not_returned(settings: dict[str, Any]) -> None:
    with Consumer(settings) as consumer:
        consumer.subscribe(["t"])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 2:
                consumer.seek(T0, 17)
            if len(seen) == 5:
                break
    assert seen == [0, 1, 17, 18, 19]


async def test_asynchronous_iteration_survives_its_time_outs(settings: dict[str, Any]) -> None:
    async with AsyncConsumer(settings) as consumer:
        consumer.subscribe(["t", "empty"])
        records = aiter(consumer)
        seen = [(await asyncio.wait_for(anext(records), 20)).offset for _ in range(COUNT)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(records), 0.05)
        consumer.seek(T0, 5)
        seen.append((await asyncio.wait_for(anext(records), 20)).offset)
        found = await consumer.getmany(T0, timeout_ms=1_000, max_records=3)
        seen += [record.offset for record in found[T0]]
        assert seen == [*range(COUNT), 5, 6, 7, 8]


# -- interrupts --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupted_after(consumer: Any) -> Iterator[None]:
    """The next call of a blocking client is interrupted when its work on the loop has ended."""
    run = consumer._thread.run

    def interrupted(work: Callable[[], Any]) -> Any:
        run(work)
        raise KeyboardInterrupt

    consumer._thread.run = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        consumer._thread.run = run


@pytest.mark.parametrize("call", [
    lambda c: c.poll(5_000, max_records=4),
    lambda c: [next(iter(c))],
    lambda c: [c.getone()],
    lambda c: c.getmany(T0, timeout_ms=5_000, max_records=4)[T0],
])  # fmt: skip
def test_the_records_of_an_interrupted_call_are_returned_again(
    settings: dict[str, Any], call: Callable[[Consumer], list[Any]]
) -> None:
    with Consumer(settings) as consumer:
        consumer.assign([T0])
        with interrupted_after(consumer):
            call(consumer)
        assert consumer.position(T0) == 0
        consumer.commit()
        assert committed(settings) == 0
        assert call(consumer)[0].offset == 0
        assert call(consumer)[0].offset > 0


def test_an_interrupted_poll_of_a_share_consumer_acknowledges_nothing(settings: dict[str, Any], servers: str) -> None:
    with Admin(bootstrap_servers=servers) as admin:
        earliest = [ConfigChange("share.auto.offset.reset", "earliest")]
        admin.incremental_alter_configs({ConfigResource.group(settings["group.id"]): earliest})
    del settings["auto.offset.reset"]
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["t"])
        with interrupted_after(consumer):
            consumer.poll(20_000)
        consumer.commit()
        first = [record.offset for record in consumer.poll(20_000)]
        assert first == list(range(COUNT))
    with ShareConsumer(settings) as consumer:  # `close` has released the records of the last poll
        consumer.subscribe(["t"])
        seen = []
        for record in consumer:
            seen.append((record.offset, record.delivery_count))
            if len(seen) == 3:
                break
        consumer.commit()
    assert seen == [(0, 2), (1, 2), (2, 2)]
    with ShareConsumer(settings) as consumer:
        consumer.subscribe(["t"])
        assert [record.offset for record in consumer.poll(20_000)] == list(range(3, COUNT))


async def test_close_consumes_no_record_that_another_task_has_got(settings: dict[str, Any]) -> None:
    consumer = AsyncConsumer(settings)
    consumer.assign([T0])
    assert (await consumer.getone()).offset == 0
    assert (await asyncio.create_task(consumer.getone())).offset == 1
    await consumer.close()
    assert await asyncio.to_thread(committed, settings) == 1


async def test_close_within_a_loop_consumes_no_record_of_the_loop(settings: dict[str, Any]) -> None:
    consumer = AsyncConsumer(settings)
    consumer.assign([T0])
    await consumer.getone()
    async for record in consumer:
        assert record.offset == 1
        await consumer.close()
        break
    assert await asyncio.to_thread(committed, settings) == 1


def test_blocking_close_consumes_no_record_that_another_thread_or_a_loop_has_got(settings: dict[str, Any]) -> None:
    consumer = Consumer(settings)
    consumer.assign([T0])
    consumer.getone()
    thread = threading.Thread(target=consumer.getone)
    thread.start()
    thread.join()
    consumer.close()
    assert committed(settings) == 1
    consumer = Consumer(settings)
    consumer.assign([T0])
    loop = iter(consumer)
    assert [next(loop).offset, consumer.getone().offset, next(loop).offset] == [1, 2, 3]
    consumer.close()
    assert committed(settings) == 3


def test_close_ends_the_calls_of_other_threads(settings: dict[str, Any]) -> None:
    consumer = Consumer(settings)
    consumer.subscribe(["empty"])
    polling, errors = threading.Event(), []

    def wait() -> None:
        polling.set()
        try:
            consumer.poll(600_000)
        except ClientClosedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    polling.wait()
    consumer.close()
    thread.join()
    assert len(errors) == 1 and "closed" in errors[0]


def test_a_signal_handler_may_close_the_client_that_waits(settings: dict[str, Any]) -> None:
    consumer = Consumer(settings)
    consumer.subscribe(["empty"])
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(ClientClosedError):
            consumer.poll(600_000)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_wakeup_interrupts_one_call(settings: dict[str, Any]) -> None:
    with Consumer(settings) as consumer:
        consumer.assign([T0])
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(600_000)
        assert consumer.poll(5_000, max_records=1)[0].offset == 0


# -- listeners ---------------------------------------------------------------------------------------------------------


class Slow(RebalanceListener):
    """Begins to wait, and goes on when the test says so."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.may_go_on = asyncio.Event()

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append("assigned")
        await self.may_go_on.wait()
        self.consumer.seek(T0, 7)
        self.calls.append("done")


class Failing(RebalanceListener):
    """Raises an exception at the first call of each method."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def _note(self, name: str) -> None:
        self.calls.append(name)
        if self.calls.count(name) == 1:
            raise BoomError(name)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._note("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._note("revoked")


@contextlib.asynccontextmanager
async def member(settings: dict[str, Any], protocol: str, listener: Any, *topics: str) -> AsyncIterator[AsyncConsumer]:
    async with AsyncConsumer(settings, group_protocol=protocol, heartbeat_interval_ms=50) as consumer:
        listener.consumer = consumer
        consumer.subscribe(topics, listener)
        yield consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_cancelled_poll_does_not_cancel_the_listener(settings: dict[str, Any], protocol: str) -> None:
    listener = Slow()
    async with member(settings, protocol, listener, "t") as consumer:
        while not listener.calls:
            await _cancelled_poll(consumer)
        await _cancelled_poll(consumer)
        listener.may_go_on.set()
        assert (await consumer.getone()).offset == 7
        assert listener.calls == ["assigned", "done"]


async def _cancelled_poll(consumer: AsyncConsumer) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await consumer.poll(60_000)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_listener_that_raises_is_called_again(settings: dict[str, Any], protocol: str) -> None:
    listener = Failing()
    async with member(settings, protocol, listener, "t", "two") as consumer:
        with pytest.raises(BoomError, match="assigned"):
            await consumer.poll(60_000)
        assert (await consumer.getone()).offset == 0
        async with member(settings, protocol, RebalanceListener(), "t", "two") as other:
            others = asyncio.create_task(_poll_for_ever(other))
            with pytest.raises(BoomError, match="revoked"):
                await _poll_for_ever(consumer)
            while not other.assignment():
                await consumer.poll(50)
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)
            assert len(consumer.assignment()) + len(other.assignment()) == 3
        assert listener.calls[:4] == ["assigned", "assigned", "revoked", "revoked"]


async def _poll_for_ever(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(50)


# -- transactions ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_commit_goes_on_and_is_continued(servers: str) -> None:
    async with AsyncProducer(bootstrap_servers=servers, transactional_id="cancelled") as producer:
        await producer.init_transactions()
        for cancelled_after in range(12):
            producer.begin_transaction()
            await producer.send("empty", b"in a transaction")
            task = asyncio.create_task(producer.commit_transaction())
            for _ in range(cancelled_after):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if task.cancelled():  # on a busy machine the coordinator may have answered before
                await producer.commit_transaction()
        producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()
        await producer.abort_transaction()


def test_an_interrupted_commit_of_a_with_block_leaves_a_usable_producer(servers: str) -> None:
    with Producer(bootstrap_servers=servers, transactional_id="interrupted") as producer:
        producer.init_transactions()
        with interrupted_after(producer), producer.transaction():
            pytest.fail("begin_transaction was interrupted")
        with producer.transaction():
            producer.send("empty", b"after an interrupt")
        commit = producer.commit_transaction

        def interrupted() -> None:
            producer.__dict__.pop("commit_transaction")
            with interrupted_after(producer):
                commit()
            raise KeyboardInterrupt

        producer.__dict__["commit_transaction"] = interrupted
        with pytest.raises(KeyboardInterrupt), producer.transaction():
            producer.send("empty", b"committed, or not at all")
        with producer.transaction():
            producer.send("empty", b"last")
