"""`barnabas.stream` against a real broker: outputs, failures and rebalances leave every record in the result once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from barnabas import AsyncAdmin, AsyncConsumer, AsyncProducer, KafkaError, TopicPartition
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.stream import ConsumerRecord, ProducerRecord, Stream, exactly_once
from tests.progress import until

Record = ConsumerRecord[bytes, bytes]
PARTITIONS = 4


@pytest.fixture
def group() -> str:
    return f"stream-{uuid4().hex[:8]}"


@pytest.fixture
def output(servers: str) -> str:
    return f"out-{uuid4().hex[:8]}"


async def fill(servers: str, topic: str, values: range) -> None:
    """Values that are numbers; number i is in partition i mod 4."""
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        for i in values:
            await producer.send(topic, b"%d" % i, partition=i % PARTITIONS)


async def read(servers: str, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
    """All committed records of a topic, partition by partition."""
    async with AsyncConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        partitions = await consumer.partitions_for(topic)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = await consumer.end_offsets(partitions)
        found: list[ConsumerRecord[bytes, bytes]] = []
        while any([await consumer.position(p) < end for p, end in ends.items()]):
            found += await consumer.poll(1_000)
    return sorted(found, key=lambda record: (record.partition, record.offset))


async def numbers(servers: str, topic: str) -> list[int]:
    return sorted(int(record.value) for record in await read(servers, topic))


async def remove_members(servers: str, group: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        described = (await admin.describe_groups([group]))[group]
        assert not isinstance(described, Exception)
        leaving = [MemberIdentity(member_id=member.member_id) for member in described.members]
        request = LeaveGroupRequest(group_id=group, members=leaving)
        await admin.cluster.send(described.coordinator, request)


@asynccontextmanager
async def running(*streams: Stream) -> AsyncIterator[None]:
    """Runs streams beside the body of the block, and stops them at its end."""
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for stream in streams:
            tasks.create_task(stream.run())
        yield
        for stream in streams:
            stream.stop()


async def until_processed(count: int, *streams: Stream) -> None:
    def processed() -> int:
        return sum(stream.processed for stream in streams)

    await until(lambda: processed() >= count, f"{count} records are processed", progress=processed)


async def test_a_function_may_be_plain_or_async_and_return_no_one_or_many_records(
    servers: str, topic: str, group: str, output: str
) -> None:
    sent_ms = int(time.time() * 1000) - 60_000  # not so old that retention deletes the record
    one = ProducerRecord(output, b"one", b"k", partition=0, timestamp=sent_ms, headers=[("h", b"1")])
    many = [ProducerRecord(output, b"many"), ProducerRecord(output, b"more")]

    def nothing(record: Record) -> None:
        return None

    def single(record: Record) -> ProducerRecord:
        return one

    def generator(record: Record) -> Iterator[ProducerRecord]:
        yield from many

    async def coroutine(record: Record) -> list[ProducerRecord]:
        return many

    async def async_generator(record: Record) -> AsyncIterator[ProducerRecord]:
        for out in many:
            yield out

    await fill(servers, topic, range(1))
    functions = (nothing, single, generator, coroutine, async_generator)
    streams = [exactly_once(topic, group_id=f"{group}-{f.__name__}", bootstrap_servers=servers)(f) for f in functions]
    assert streams[1](await_first := (await read(servers, topic))[0]) is one
    assert await_first.value == b"0"
    for stream in streams:
        async with running(stream):
            await until_processed(1, stream)
    found = await read(servers, output)
    assert sorted(record.value for record in found) == [b"many"] * 3 + [b"more"] * 3 + [b"one"]
    exact = next(record for record in found if record.value == b"one")
    assert (exact.key, exact.partition, exact.timestamp, exact.headers) == (b"k", 0, sent_ms, (("h", b"1"),))


async def test_the_exception_of_a_function_ends_the_stream_and_leaves_nothing_of_the_transaction(
    servers: str, topic: str, group: str, output: str
) -> None:
    await fill(servers, topic, range(40))
    broken = True

    @exactly_once(topic, group_id=group, bootstrap_servers=servers)
    def copy(record: Record) -> ProducerRecord:
        if broken and record.value == b"30":
            raise ValueError("no")
        return ProducerRecord(output, record.value)

    with pytest.raises(ValueError, match="no") as raised:
        await copy.run()
    assert raised.value.__notes__ == [
        f"The record at offset 7 of {topic}-2 could not be transformed. Mend the function, or pass"
        " dead_letters='TOPIC' to set such records aside."
    ]
    assert copy.aborted == 1
    broken = False
    done = copy.processed
    async with running(copy):
        await until_processed(40, copy)
    assert done < 40
    assert await numbers(servers, output) == list(range(40))


async def test_records_whose_function_raises_go_to_the_dead_letters_without_their_outputs(
    servers: str, topic: str, group: str, output: str
) -> None:
    await fill(servers, topic, range(8))
    dead = f"{output}-dead"

    @exactly_once(topic, group_id=group, dead_letters=dead, bootstrap_servers=servers)
    def copy(record: Record) -> Iterator[ProducerRecord]:
        yield ProducerRecord(output, record.value)
        if record.value == b"5":
            raise ValueError("odd one")

    async with running(copy):
        await until_processed(8, copy)
    assert await numbers(servers, output) == [0, 1, 2, 3, 4, 6, 7]
    (letter,) = await read(servers, dead)
    headers = dict(letter.headers)
    stack = headers.pop("__connect.errors.exception.stacktrace")
    assert stack is not None and b"ValueError: odd one" in stack
    assert letter.value == b"5"
    assert headers == {
        "__connect.errors.topic": topic.encode(),
        "__connect.errors.partition": b"1",
        "__connect.errors.offset": b"1",
        "__connect.errors.exception.class.name": b"builtins.ValueError",
        "__connect.errors.exception.message": b"odd one",
    }
    assert copy.aborted == 0


async def test_a_producer_that_was_fenced_in_a_transaction_is_replaced(
    servers: str, topic: str, group: str, output: str
) -> None:
    """As by the coordinator when the transaction has taken longer than transaction.timeout.ms."""
    await fill(servers, topic, range(40))
    fenced = False

    async def copy(record: Record) -> ProducerRecord:
        nonlocal fenced
        if not fenced:
            fenced = True
            async with AsyncProducer(bootstrap_servers=servers, transactional_id=f"{group}-a") as other:
                await other.init_transactions()
        return ProducerRecord(output, record.value)

    stream = Stream(copy, [topic], group_id=group, instance="a", bootstrap_servers=servers)
    async with running(stream):
        await until_processed(40, stream)
    assert stream.aborted == 1
    assert await numbers(servers, output) == list(range(40))


async def test_a_member_that_was_removed_in_a_transaction_aborts_and_joins_again(
    servers: str, topic: str, group: str, output: str
) -> None:
    """As by the coordinator when the member has not sent heartbeats for session.timeout.ms."""
    await fill(servers, topic, range(40))
    removed = False

    async def copy(record: Record) -> ProducerRecord:
        nonlocal removed
        if not removed:
            removed = True
            await remove_members(servers, group)
        return ProducerRecord(output, record.value)

    stream = Stream(copy, [topic], group_id=group, bootstrap_servers=servers, heartbeat_interval_ms=100)
    async with running(stream):
        await until_processed(40, stream)
    assert stream.aborted >= 1
    assert await numbers(servers, output) == list(range(40))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_partitions_move_between_streams_without_loss_or_duplicates(
    servers: str, topic: str, group: str, output: str, protocol: str
) -> None:
    def copy(record: Record) -> ProducerRecord:
        return ProducerRecord(output, record.value)

    settings = {"bootstrap_servers": servers, "group_protocol": protocol, "max_poll_records": 7}
    if protocol == "classic":
        settings |= {"heartbeat_interval_ms": 100}
    one, two = (Stream(copy, [topic], group_id=group, **settings) for _ in range(2))
    async with running(one):
        await fill(servers, topic, range(400))
        await until_processed(1, one)
        async with running(two):  # takes over some partitions while both work, and gives them back
            fed = 400
            while not two.processed:
                await fill(servers, topic, range(fed, fed + 40))
                fed += 40
                await asyncio.sleep(0.05)  # the first stream goes on meanwhile
        await fill(servers, topic, range(fed, fed + 40))
        await until_processed(fed + 40, one, two)
    assert await numbers(servers, output) == list(range(fed + 40))


async def test_the_lag_is_zero_after_the_markers_of_the_input_transactions(
    servers: str, topic: str, group: str, output: str
) -> None:
    async with AsyncProducer(bootstrap_servers=servers, transactional_id=group) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"1", partition=0)
    stream = Stream(lambda record: None, [topic], group_id=group, bootstrap_servers=servers)
    async with running(stream):
        await until_processed(1, stream)
    partition = TopicPartition(topic, 0)
    async with AsyncConsumer(bootstrap_servers=servers, group_id=group) as consumer:
        committed = (await consumer.committed([partition]))[partition]
        ends = await consumer.end_offsets([partition])
    assert committed is not None
    assert (committed.offset, ends[partition]) == (2, 2)


async def test_an_output_that_no_broker_accepts_ends_the_stream(servers: str, topic: str, group: str) -> None:
    await fill(servers, topic, range(1))

    @exactly_once(topic, group_id=group, bootstrap_servers=servers)
    def swell(record: Record) -> ProducerRecord:
        return ProducerRecord(topic, bytes(2_000_000))

    with pytest.raises(KafkaError) as raised:
        await swell.run()
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


async def test_another_process_with_the_same_instance_ends_the_stream(
    servers: str, topic: str, group: str, output: str
) -> None:
    def copy(record: Record) -> ProducerRecord:
        return ProducerRecord(output, record.value)

    settings = {"instance": "a", "bootstrap_servers": servers, "heartbeat_interval_ms": 50}
    old, new = (Stream(copy, [topic], group_id=group, **settings) for _ in range(2))
    await fill(servers, topic, range(40))
    running_old = asyncio.create_task(old.run())
    await until_processed(40, old)
    async with running(new):
        with pytest.raises(KafkaError) as raised:
            await running_old
        await fill(servers, topic, range(40, 80))
        await until_processed(40, new)
    assert raised.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert await numbers(servers, output) == list(range(80))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"transactional_id": "x"}, "A stream sets transactional.id itself; name its members with `instance`."),
        ({"enable_auto_commit": True}, "A stream sets enable.auto.commit itself"),
        ({"linger_mss": 1}, "There is no config 'linger.mss' for this client. Did you mean 'linger.ms'"),
    ],
)
async def test_a_config_that_a_stream_cannot_have_is_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        await Stream(lambda record: None, ["t"], group_id="g", bootstrap_servers="127.0.0.1:1", **settings).run()
