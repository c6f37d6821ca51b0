"""Every row of the tables in docs/migration: what stands on its right side is run, or looked up if it is no call.

Every method that the prose of these pages and of the tutorial names is run, too: by a block of the page, or by a test
here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow
import pytest

from barnabas import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Consumer,
    KafkaError,
    Producer,
    RebalanceListener,
    ShareConsumer,
    SubscriptionPattern,
    TopicPartition,
)
from barnabas.client.config import CONSUMER_CONFIGS, PRODUCER_CONFIGS
from barnabas.client.oauth_configs import OAUTH_ROWS
from barnabas.client.values import ConfigChange, ConfigResource
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode
from barnabas.testing.embedded import EmbeddedBroker

DOCS: Final = Path(__file__).parents[3] / "docs"
PAGES: Final = DOCS / "migration"
ROWS: Final[dict[str, dict[str, Callable[[Case], object]]]] = {}
"""For each page, the test of each row, by the left side of the row."""
PROSE: Final[dict[str, dict[str, Callable[[Case], object]]]] = {}
"""For each page, the test of each method that only its prose names."""
CLASSES: Final = (AsyncAdmin, AsyncConsumer, AsyncProducer, AsyncShareConsumer, RebalanceListener)
METHODS: Final = {name for each in CLASSES for name in dir(each) if not name.startswith("_")}
"""Those of the asyncio clients, which the blocking ones have, too."""
NAMES_OF_PLACEHOLDERS: Final = {"f", "g", "h", "str"}
WAIT_MS: Final = 5_000


@dataclass
class Case:
    """A topic with five records, for one row."""

    servers: str
    topic: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def settings(self, **more: Any) -> dict[str, Any]:
        common = {"bootstrap_servers": self.servers, "group_id": self.topic, "auto_offset_reset": "earliest"}
        return {**common, "fetch_max_wait_ms": 50, **more}

    def consumer(self, **more: Any) -> Consumer:
        consumer = Consumer(**self.settings(**more))
        consumer.assign([self.tp])
        return consumer

    def producer(self, **more: Any) -> Producer:
        return Producer(bootstrap_servers=self.servers, **more)

    def with_consumer(self, call: Callable[[AsyncConsumer], Awaitable[object]]) -> None:
        async def run() -> None:
            async with AsyncConsumer(**self.settings()) as consumer:
                consumer.assign([self.tp])
                await call(consumer)

        asyncio.run(run())

    def with_producer(self, call: Callable[[AsyncProducer], Awaitable[object]], **settings: Any) -> None:
        async def run() -> None:
            async with AsyncProducer(bootstrap_servers=self.servers, **settings) as producer:
                await call(producer)

        asyncio.run(run())


def row(page: str, *lefts: str) -> Callable[[Callable[[Case], object]], Callable[[Case], object]]:
    def add(test: Callable[[Case], object]) -> Callable[[Case], object]:
        for left in lefts:
            ROWS.setdefault(page, {})[left] = test
        return test

    return add


def prose(page: str, *names: str) -> Callable[[Callable[[Case], object]], Callable[[Case], object]]:
    def add(test: Callable[[Case], object]) -> Callable[[Case], object]:
        PROSE.setdefault(page, {}).update(dict.fromkeys(names, test))
        return test

    return add


# -- aiokafka ----------------------------------------------------------------------------------------------------------


@row("aiokafka", "`AIOKafkaProducer(...)`, `await producer.start()` ... `stop()`")
def _async_producer(case: Case) -> None:
    async def run() -> None:
        producer = AsyncProducer(bootstrap_servers=case.servers)
        await producer.close()
        async with AsyncProducer(bootstrap_servers=case.servers):
            pass

    asyncio.run(run())


@row(
    "aiokafka",
    "`await producer.send(topic, value, key=..., partition=..., timestamp_ms=..., headers=...)`",
    "`future = await producer.send(...)`, `await future`",
    "`await producer.send_and_wait(...)`",
)
def _async_send(case: Case) -> None:
    async def call(producer: AsyncProducer) -> None:
        future = await producer.send(case.topic, b"v", key=b"k", partition=0, timestamp=1, headers=[("a", b"b")])
        assert ((await future).offset, (await future).timestamp) == (5, 1)
        assert (await producer.send_and_wait(case.topic, b"v")).offset == 6

    case.with_producer(call)


@row("aiokafka", "`create_batch()`, `send_batch()`")
def _send_arrow(case: Case) -> None:
    table = pyarrow.table({"k": [b"a", b"b"], "v": [b"1", b"2"]})

    async def call(producer: AsyncProducer) -> None:
        await producer.send_arrow(case.topic, table, key="k", value="v")
        await producer.flush()

    case.with_producer(call)
    with case.consumer() as consumer:
        assert consumer.end_offsets([case.tp]) == {case.tp: 7}


@row(
    "aiokafka",
    "`async with producer.transaction():`",
    "`await producer.send_offsets_to_transaction(offsets, group_id)`",
)
def _async_transaction(case: Case) -> None:
    async def call(producer: AsyncProducer) -> None:
        await producer.init_transactions()
        async with AsyncConsumer(**case.settings()) as consumer, producer.transaction():
            await producer.send(case.topic, b"v")
            await producer.send_offsets_to_transaction({case.tp: 3}, consumer.group_metadata())

    case.with_producer(call, transactional_id=case.topic)
    with case.consumer() as consumer:
        found = consumer.committed([case.tp])[case.tp]
        assert found is not None and found.offset == 3


@row("aiokafka", "`AIOKafkaConsumer('t', group_id=...)`", "`async for msg in consumer:`, `break`, a loop again")
def _async_loops(case: Case) -> None:
    async def run() -> None:
        seen = []
        async with AsyncConsumer(**case.settings()) as consumer:
            consumer.subscribe([case.topic])
            for _ in range(2):
                async for msg in consumer:
                    seen.append(msg.offset)
                    break
        assert seen == [0, 1]

        async def fail() -> None:
            async with AsyncConsumer(**case.settings()) as consumer:
                consumer.subscribe([case.topic])
                async for msg in consumer:
                    seen.append(msg.offset)
                    if msg.offset == 3:
                        raise ValueError

        for _ in range(2):
            with pytest.raises(ValueError):
                await fail()
        assert seen == [0, 1, 2, 3, 3]

    asyncio.run(run())


@row(
    "aiokafka",
    "`await consumer.getone()`, `await consumer.getone(tp)`",
    "`await asyncio.wait_for(consumer.getone(), 1)`",
    "`await consumer.getmany(timeout_ms=1000, max_records=500)` → dict",
    "`await consumer.seek_to_beginning(tp)`, `seek_to_end(tp)`",
    "`consumer.seek(tp, 5)`",
    "`consumer.highwater(tp)`",
)
def _async_reads(case: Case) -> None:
    async def call(consumer: AsyncConsumer) -> None:
        tp = case.tp
        assert ((await consumer.getone()).offset, (await consumer.getone(tp)).offset) == (0, 1)
        assert consumer.lag(tp) == 3
        found = await consumer.getmany(timeout_ms=1000, max_records=2)
        assert [record.offset for record in found[tp]] == [2, 3]
        assert [record.offset for record in await consumer.poll(1000, max_records=500)] == [4]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getone(), 0.05)
        consumer.seek_to_beginning(tp)
        assert await consumer.position(tp) == 0
        consumer.seek_to_end(tp)
        assert await consumer.position(tp) == 5
        consumer.seek(tp, 4)
        assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 4

    case.with_consumer(call)


@row("aiokafka", "`await consumer.stop()`")
def _async_close(case: Case) -> None:
    async def call(consumer: AsyncConsumer) -> None:
        await consumer.close()

    case.with_consumer(call)


@row("aiokafka", "`await consumer.commit({tp: 5})`", "`await consumer.committed(tp)`")
def _async_commits(case: Case) -> None:
    async def call(consumer: AsyncConsumer) -> None:
        tp = case.tp
        await consumer.commit({tp: 5})
        found = (await consumer.committed([tp]))[tp]
        assert found is not None and found.offset == 5

    case.with_consumer(call)


@row("aiokafka", "`ConsumerRebalanceListener`")
@row("kafka-python", "`ConsumerRebalanceListener`")
@row(
    "confluent-kafka", "`Consumer({'group.id': ...})`, `consumer.subscribe(['t'], on_assign=f, on_revoke=g, on_lost=h)`"
)
def _listeners(case: Case) -> None:
    calls: list[str] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            calls.append("assigned")

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            calls.append("revoked")

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            calls.append("lost")

    with Consumer({"bootstrap.servers": case.servers, "group.id": case.topic}) as consumer:
        consumer.subscribe([case.topic], Listener())
        while not calls:
            consumer.poll(100)
    assert calls == ["assigned", "revoked"]


@row("aiokafka", "`AIOKafkaAdminClient`")
def _async_admin(case: Case) -> None:
    async def run() -> None:
        async with AsyncAdmin(bootstrap_servers=case.servers) as admin:
            assert case.topic in [topic.name for topic in await admin.list_topics()]

    asyncio.run(run())


@row("aiokafka", "`aiokafka.errors.KafkaError`")
@row("kafka-python", "`kafka.errors.KafkaError`")
def _errors(case: Case) -> None:
    with Admin(bootstrap_servers=case.servers) as admin, pytest.raises(KafkaError) as failure:
        admin.create_topic(case.topic, 1)
    assert (failure.value.code, failure.value.retriable) == (ErrorCode.TOPIC_ALREADY_EXISTS, False)


# -- kafka-python ------------------------------------------------------------------------------------------------------


@row("kafka-python", "`KafkaProducer(bootstrap_servers=..., value_serializer=f)`")
def _serializers(case: Case) -> None:
    with Producer(
        bootstrap_servers=case.servers, value_serializer=lambda value: json.dumps(value).encode()
    ) as producer:
        assert producer.send(case.topic, {"a": 1}).result(10).offset == 5


@row(
    "kafka-python",
    "`producer.send(topic, value, key=..., partition=..., headers=..., timestamp_ms=...)`",
    "`producer.send(...).get(timeout=10)`",
    "`.add_callback(ok).add_errback(bad)`",
    "`producer.flush(timeout=10)`",
)
@row(
    "confluent-kafka",
    "`producer.produce(topic, value, key=..., callback=f)`",
    "`f(err, msg)`",
    "`producer.flush(10)`",
)
def _sends(case: Case) -> None:
    delivered = []
    with case.producer() as producer:
        sent = producer.send(case.topic, b"v", key=b"k", partition=0, headers=[("a", b"b")], timestamp=1)
        assert sent.result(10).offset == 5
        assert producer.send_and_wait(case.topic, b"v").offset == 6
        producer.send(case.topic, b"v", on_delivery=lambda metadata, error: delivered.append((metadata.offset, error)))
        producer.flush(10_000)
    assert delivered == [(7, None)]


@row("kafka-python", "`KafkaConsumer('t', group_id=...)`", "`for message in consumer:`, `break`, a loop again")
def _loops(case: Case) -> None:
    seen = []
    with Consumer(**case.settings()) as consumer:
        consumer.subscribe([case.topic])
        for _ in range(2):
            for message in consumer:
                seen.append(message.offset)
                break
    assert seen == [0, 1]

    def fail() -> None:
        with Consumer(**case.settings()) as consumer:
            consumer.subscribe([case.topic])
            for message in consumer:
                seen.append(message.offset)
                if message.offset == 3:
                    raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fail()
    assert seen == [0, 1, 2, 3, 3]


@row(
    "kafka-python",
    "`consumer.poll(timeout_ms=1000, max_records=5)` → dict by partition",
    "`next(consumer)`",
    "`consumer_timeout_ms=1000`",
)
@row(
    "confluent-kafka",
    "`msg = consumer.poll(1.0)`; `if msg is None`; `if msg.error()`",
    "`consumer.consume(500, 1.0)`",
    "`consumer.consume(1, 1.0)`, `consumer.poll()` without a time",
)
def _reads(case: Case) -> None:
    with case.consumer() as consumer:
        assert consumer.getone().offset == 0
        assert [record.offset for record in consumer.getmany(timeout_ms=1000, max_records=2)[case.tp]] == [1, 2]
        assert [record.offset for record in consumer.poll(1_000, max_records=500)] == [3, 4]
        assert consumer.poll(10) == []


@row("kafka-python", "`message.topic, .partition, .offset, .key, .value, .timestamp, .headers`")
@row("confluent-kafka", "`msg.value()`, `msg.key()`, `msg.offset()` ...")
def _fields(case: Case) -> None:
    with case.consumer() as consumer:
        record = consumer.getone()
    assert (record.topic, record.partition, record.offset, record.key, record.value) == (case.topic, 0, 0, None, b"0")
    assert (record.timestamp > 0, list(record.headers)) == (True, [])


@row("kafka-python", "`consumer.commit(offsets={tp: OffsetAndMetadata(5, '', -1)})`", "`consumer.commit_async()`")
@row("confluent-kafka", "`consumer.commit(asynchronous=False)`", "`consumer.commit()`")
def _commits(case: Case) -> None:
    def committed() -> int | None:
        found = consumer.committed([case.tp])[case.tp]
        return None if found is None else found.offset

    with case.consumer(enable_auto_commit=False) as consumer:
        consumer.getone()
        consumer.commit({case.tp: 5})
        assert committed() == 5
        consumer.commit()
        assert committed() == 1
        consumer.getone()
        consumer.commit_nowait()
    with case.consumer() as consumer:
        assert committed() == 2


@row("kafka-python", "`consumer.close()`, `consumer.close(autocommit=False)`")
@row("confluent-kafka", "`enable.auto.offset.store=false`, `consumer.store_offsets(msg)`")
def _close(case: Case) -> None:
    consumer = case.consumer(enable_auto_commit=False)
    consumer.getone()
    consumer.close()
    consumer = case.consumer()
    assert consumer.getone().offset == 0
    consumer.close()
    consumer = case.consumer()
    assert consumer.getone().offset == 1
    consumer.close()


@row(
    "kafka-python",
    "`consumer.seek(tp, 5)`, `seek_to_beginning()`, `seek_to_end()`",
    "`consumer.offsets_for_times`, `beginning_offsets`, `end_offsets`, `position`, `committed`, `pause`, `resume`",
)
@row(
    "confluent-kafka",
    "`consumer.assign([TopicPartition('t', 0, 5)])`",
    "`consumer.get_watermark_offsets(tp)`",
)
def _positions(case: Case) -> None:
    tp = case.tp
    with Consumer(**case.settings()) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 5)
        assert consumer.position(tp) == 5
        consumer.seek_to_beginning()
        assert consumer.position(tp) == 0
        consumer.seek_to_end()
        assert consumer.position(tp) == 5
        assert (consumer.beginning_offsets([tp]), consumer.end_offsets([tp])) == ({tp: 0}, {tp: 5})
        found = consumer.offsets_for_times({tp: 0})[tp]
        assert (found and found.offset, consumer.committed([tp])) == (0, {tp: None})
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        consumer.resume(tp)
        assert consumer.paused() == frozenset()


@row("kafka-python", "`enable_auto_commit=False, auto_offset_reset='earliest'`")
def _settings(case: Case) -> None:
    with Consumer(bootstrap_servers=case.servers, enable_auto_commit=False, auto_offset_reset="earliest"):
        pass


@row("kafka-python", "`KafkaAdminClient`")
@row("confluent-kafka", "`AdminClient.create_topics([NewTopic('t', 3, 1)])['t'].result()`")
def _admin(case: Case) -> None:
    with Admin(bootstrap_servers=case.servers) as admin:
        admin.create_topic(f"{case.topic}-2", 3, 1)
        assert len(admin.describe_topics([f"{case.topic}-2"])[f"{case.topic}-2"].partitions) == 3


@row("kafka-python", "`TopicPartition` (a tuple)")
def _topic_partitions(case: Case) -> None:
    assert str(TopicPartition("topic", 0)) == "topic-0"


# -- confluent-kafka ---------------------------------------------------------------------------------------------------


@row("confluent-kafka", "`Producer({'bootstrap.servers': ...})`")
def _mapping(case: Case) -> None:
    with Producer({"bootstrap.servers": case.servers}) as producer:
        assert producer.send(case.topic, b"v").result(10).offset == 5


@row("confluent-kafka", "`producer.poll(0)` between calls, `BufferError`")
def _full_buffer(case: Case) -> None:
    with case.producer(buffer_memory=20_000, batch_size=1_000) as producer:
        for _ in range(100):
            producer.send(case.topic, b"x" * 900)
        producer.flush()
    with case.consumer() as consumer:
        assert consumer.end_offsets([case.tp]) == {case.tp: 105}


@row(
    "confluent-kafka",
    "`producer.init_transactions()`, `begin_transaction()`, `commit_transaction()`, `abort_transaction()`",
    "`producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())`",
)
def _transactions(case: Case) -> None:
    with case.producer(transactional_id=case.topic) as producer, case.consumer() as consumer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(case.topic, b"aborted")
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({case.tp: 3}, consumer.group_metadata())
        producer.commit_transaction()
        with producer.transaction():
            producer.send(case.topic, b"committed")
    with case.consumer(isolation_level="read_committed") as consumer:
        assert consumer.position(case.tp) == 3
        values: list[bytes] = []
        while len(values) < 3:
            values += [record.value for record in consumer.poll(WAIT_MS)]
        assert values == [b"3", b"4", b"committed"]


@row("confluent-kafka", "`'^t.*'` as a topic")
def _patterns(case: Case) -> None:
    with Consumer(**case.settings()) as consumer:
        consumer.subscribe(re.compile(f"{case.topic[:-1]}.*"))
        assert consumer.getone().topic.startswith(case.topic[:-1])
    with Consumer(**case.settings(group_id=f"{case.topic}-remote", group_protocol="consumer")) as consumer:
        consumer.subscribe(SubscriptionPattern(f"{case.topic}.*"))
        assert consumer.getone().topic.startswith(case.topic)


@row(
    "confluent-kafka",
    "`batch.size`, `queue.buffering.max.kbytes`, `queue.buffering.max.messages`",
    "`message.max.bytes`",
)
def _sizes(case: Case) -> None:
    assert {"batch.size", "buffer.memory", "max.request.size"} <= PRODUCER_CONFIGS.keys.keys()
    for name, ours in {"queue.buffering.max.kbytes": "buffer.memory", "message.max.bytes": "max.request.size"}.items():
        with pytest.raises(ConfigError, match=ours):
            Producer({"bootstrap.servers": case.servers, name: "1000"})


@row("confluent-kafka", "`group.protocol`, `group.instance.id`, `isolation.level`, `auto.offset.reset`")
def _configs(case: Case) -> None:
    assert {
        "group.protocol",
        "group.instance.id",
        "isolation.level",
        "auto.offset.reset",
    } <= CONSUMER_CONFIGS.keys.keys()


@row(
    "confluent-kafka",
    "`oauth_cb`, `sasl.oauthbearer.method`, `sasl.oauthbearer.client.id`, `sasl.oauthbearer.client.secret`",
)
def _oauth(case: Case) -> None:
    wanted = {"oauth_cb", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"}
    assert wanted <= {each[0] for each in OAUTH_ROWS}


# -- the tutorial ------------------------------------------------------------------------------------------------------


@prose("tutorial/worker", "init_transactions", "prepare_transaction", "complete_transaction")
def _two_phases(case: Case) -> None:
    """After a crash `complete_transaction` commits if it gets the transaction that waits, and aborts it otherwise."""

    async def run() -> None:
        settings = {"bootstrap.servers": case.servers, "transactional.id": case.topic}
        settings["transaction.two.phase.commit.enable"] = "true"
        for value in (b"committed", b"aborted"):
            producer = AsyncProducer(settings)
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(case.topic, value)
            kept = await producer.prepare_transaction()
            await producer.close()  # the crash
            async with AsyncProducer(settings) as heir:
                await heir.init_transactions(keep_prepared=True)
                decided = str(kept) if value == b"committed" else "1:1"
                assert await heir.complete_transaction(decided) is (value == b"committed")

    asyncio.run(run())
    with case.consumer(isolation_level="read_committed") as consumer:
        values: list[bytes] = []
        while consumer.position(case.tp) < consumer.end_offsets([case.tp])[case.tp]:
            values += [record.value for record in consumer.poll(WAIT_MS)]
    assert values == [b"0", b"1", b"2", b"3", b"4", b"committed"]


@prose("tutorial/arrow", "poll_arrow")
def _poll_arrow(case: Case) -> None:
    with case.consumer() as consumer:
        batch = consumer.poll_arrow(WAIT_MS)
        assert batch is not None and batch.column("value").to_pylist() == [b"%d" % number for number in range(5)]


@prose("tutorial/queue", "commit", "close")
def _share_loop(case: Case) -> None:
    """Without `share.acknowledgement.mode=explicit`: the loop acknowledges a record when it asks for the next one;
    `commit` acknowledges the last one, and `close` releases it."""
    begin = {ConfigResource.group(case.topic): [ConfigChange("share.auto.offset.reset", "earliest")]}
    with Admin(bootstrap_servers=case.servers) as admin:
        admin.incremental_alter_configs(begin)
    seen = []
    for commits in (True, False, True):
        worker = ShareConsumer(bootstrap_servers=case.servers, group_id=case.topic)
        worker.subscribe([case.topic])
        for record in worker:
            seen.append(record.offset)
            if len(seen) % 2 == 0:
                break
        if commits:
            worker.commit()
        worker.close()
    assert seen == [0, 1, 2, 3, 3, 4]


# -- the pages ---------------------------------------------------------------------------------------------------------


PAGES_WITH_PROSE: Final = sorted(
    str(path.relative_to(DOCS)) for folder in ("migration", "tutorial") for path in (DOCS / folder).glob("*.md")
)


def rows_of(page: str) -> dict[str, str]:
    """The rows of the page's table: the left sides, with their right sides."""
    lines = (PAGES / f"{page}.md").read_text(encoding="utf-8").splitlines()
    rows = [
        re.split(r"(?<!\\) \| ", line.strip().removeprefix("| ").removesuffix(" |"))
        for line in lines
        if line[:2] == "| "
    ]
    return dict(rows[1:])


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    kinds = ("consumer", "share")
    quick = {f"group.{kind}.{name}heartbeat.interval.ms": "50" for kind in kinds for name in ("", "min.")}
    with EmbeddedBroker({**quick, "transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap_servers


CASES: Final = [
    (page, test) for pages in (ROWS, PROSE) for page, tests in pages.items() for test in dict.fromkeys(tests.values())
]


@pytest.mark.parametrize(("page", "test"), CASES, ids=[f"{page}{test.__name__}" for page, test in CASES])
def test_what_the_page_tells_of_is_so(servers: str, page: str, test: Callable[[Case], object]) -> None:
    case = Case(servers, f"{page.rpartition('/')[2]}{test.__name__}")
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(case.topic, 1)
    with case.producer() as producer:
        for number in range(5):
            producer.send(case.topic, b"%d" % number)
    test(case)


@pytest.mark.parametrize("page", ["aiokafka", "kafka-python", "confluent-kafka"])
def test_every_row_has_a_test_that_calls_what_it_names(page: str) -> None:
    rows = rows_of(page)
    assert list(rows) == [left for left in rows if left in ROWS[page]], "rows without a test"
    assert not ROWS[page].keys() - rows.keys()
    for left, right in rows.items():
        source = inspect.getsource(ROWS[page][left])
        named = set(re.findall(r"(\w+)\(", " ".join(re.findall(r"`([^`]+)`", right)))) - NAMES_OF_PLACEHOLDERS
        named |= methods_named_in(f"{left} {right}" if "the same" in right else right)
        missing = {name for name in named if f"{name}(" not in source and not calls(source, name)}
        assert not missing, f"{left}: the test does not call {missing}"


@pytest.mark.parametrize("page", PAGES_WITH_PROSE)
def test_every_method_that_the_prose_names_is_called(page: str) -> None:
    blocks, text = blocks_and_prose((DOCS / page).read_text(encoding="utf-8"))
    tests = PROSE.get(page.removesuffix(".md"), {})
    named = methods_named_in(text)
    assert tests.keys() <= named, "tests of what the page does not name"
    for name in named:
        source = inspect.getsource(tests[name]) if name in tests else blocks
        assert calls(source, name), f"{page} names {name}, and neither its blocks nor a test here call it"


def blocks_and_prose(page: str) -> tuple[str, str]:
    """The page's blocks of Python, which `tests/system/client/test_tutorial.py` runs, and its text without blocks and
    tables."""
    parts = re.split(r"```(\w*)\n(.*?)```", page, flags=re.DOTALL)
    blocks = "".join(body for kind, body in zip(parts[1::3], parts[2::3], strict=True) if kind == "python")
    return blocks, "\n".join(line for part in parts[::3] for line in part.splitlines() if line[:1] != "|")


def methods_named_in(text: str) -> set[str]:
    """The methods of our clients that the text names between backticks, alone or as part of a call."""
    spans = re.findall(r"`([^`]+)`", text)
    called = {name for span in spans for name in re.findall(r"(\w+)\(", span)}
    alone = {name for span in spans if re.fullmatch(r"(\w+\.)?\w+", span) for name in span.split(".")[-1:]}
    return (called | alone) & METHODS


def calls(source: str, name: str) -> bool:
    """Whether the source calls a method, or (a listener's) defines it, or reads it (a property)."""
    return re.search(rf"(\.|def ){name}\b", source) is not None
