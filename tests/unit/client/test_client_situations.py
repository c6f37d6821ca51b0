"""Situations that users of other clients report: what those clients do, and what ours do. Each test is a row of the
table in docs/CLIENTS_SITUATIONS.md (`--rewrite` writes the table)."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pytest

from barnabas import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KafkaError,
    Producer,
    RebalanceListener,
    ShareConsumer,
    TopicPartition,
)
from barnabas.client.errors import (
    BootstrapError,
    ClientClosedError,
    CommitFailedError,
    DeliveryFailedError,
    NoOffsetError,
    SerializationError,
    TransactionAbortedError,
    TransactionStateError,
    WakeupError,
)
from barnabas.client.values import ConfigChange, ConfigResource, ConfigResourceType, OffsetAndMetadata
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, ErrorCode
from barnabas.testing.embedded import EmbeddedBroker
from tests.progress import wait_until

PAGE: Final = Path(__file__).parents[3] / "docs" / "CLIENTS_SITUATIONS.md"
BEGIN, END = "<!-- situations -->\n", "<!-- /situations -->\n"
F = TypeVar("F", bound=Callable[..., None])
WAIT_MS: Final = 5_000
FAST: Final[dict[str, Any]] = {"fetch_max_wait_ms": 50, "heartbeat_interval_ms": 50}


class Situation(NamedTuple):
    """A row of the table."""

    what: str
    others: str
    ours: str


SITUATIONS: Final[list[Situation]] = []


def situation(what: str, others: str, ours: str) -> Callable[[F], F]:
    SITUATIONS.append(Situation(what, others, ours))
    return lambda test: test


class BoomError(Exception):
    """The program's own error."""


@dataclass
class Place:
    """A topic of its own for one test, with records `0`, `1`, ... in its first partition."""

    servers: str
    topic: str
    partitions: list[TopicPartition] = field(default_factory=list)

    @property
    def tp(self) -> TopicPartition:
        return self.partitions[0]

    def settings(self, **more: Any) -> dict[str, Any]:
        """A consumer of a group of its own, which begins at the first record."""
        return {
            "bootstrap_servers": self.servers,
            "group_id": self.topic,
            "auto_offset_reset": "earliest",
            **FAST,
            **more,
        }

    def consumer(self, **more: Any) -> Consumer:
        """A subscribed consumer."""
        consumer = Consumer(**self.settings(**more))
        consumer.subscribe([self.topic])
        return consumer

    def assigned(self, **more: Any) -> Consumer:
        consumer = Consumer(**self.settings(**more))
        consumer.assign(self.partitions)
        return consumer

    def producer(self, **more: Any) -> Producer:
        return Producer(bootstrap_servers=self.servers, **more)

    def send(self, *values: bytes, partition: int = 0) -> None:
        with self.producer() as producer:
            for value in values:
                producer.send(self.topic, value, partition=partition)

    def committed(self) -> int | None:
        with Admin(bootstrap_servers=self.servers) as admin:
            found = admin.list_group_offsets(self.topic)
        return found[self.tp].offset if self.tp in found else None


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    quick = {
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "50",
        "group.consumer.assignment.interval.ms": "0",
        "auto.create.topics.enable": "false",
    }
    with EmbeddedBroker(quick) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


def make(admin: Admin, servers: str, name: str, partitions: int = 1, records: int = 5) -> Place:
    topic = re.sub(r"\W+", "-", name.removeprefix("test_"))
    admin.create_topic(topic, partitions)
    place = Place(servers, topic, [TopicPartition(topic, index) for index in range(partitions)])
    if records:
        place.send(*(b"%d" % number for number in range(records)))
    return place


@pytest.fixture
def place(admin: Admin, servers: str, request: pytest.FixtureRequest) -> Place:
    return make(admin, servers, request.node.name)


@pytest.fixture
def empty(admin: Admin, servers: str, request: pytest.FixtureRequest) -> Place:
    return make(admin, servers, request.node.name, records=0)


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


def poll_all(consumer: Consumer, count: int) -> list[Any]:
    """That many records."""
    found: list[Any] = []
    deadline = time.monotonic() + 10
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(200)
    return found


def settle(consumer: Consumer, *others: Consumer, owned: int) -> None:
    """Poll until the first consumer owns that many partitions."""
    deadline = time.monotonic() + 10
    while len(consumer.assignment()) != owned and time.monotonic() < deadline:
        for each in (consumer, *others):
            each.poll(20)
    assert len(consumer.assignment()) == owned


# -- loops and calls that read -----------------------------------------------------------------------------------------


@situation(
    "A loop over a consumer is left after one of many records, and the program commits.",
    "kafka-python, aiokafka: the position is behind the record that was returned.",
    "The same; the next loop or call continues with the next record.",
)
def test_loop_left_after_one_record(place: Place) -> None:
    with place.consumer(enable_auto_commit=False) as consumer:
        for _ in consumer:
            break
        consumer.commit()
        assert place.committed() == 1
        assert next(iter(consumer)).offset == 1


@situation(
    "The body of a loop raises, and the consumer is closed with auto-commit.",
    "kafka-python, Java: `close` commits the position after the record that failed, unless a setting prevents it.",
    "The record counts as consumed when the next one is asked for: it is read again.",
)
def test_body_raises_with_auto_commit(place: Place) -> None:
    def run() -> None:
        with place.consumer() as consumer:
            for record in consumer:
                if record.offset == 2:
                    raise BoomError

    with pytest.raises(BoomError):
        run()
    assert place.committed() == 2


@situation(
    "With `enable_auto_commit=False` the program commits after each record, and fails at the third.",
    "kafka-python, aiokafka, Java (with offsets given): two records are committed.",
    "The same.",
)
def test_commit_after_each_record(place: Place) -> None:
    def run() -> None:
        with place.consumer(enable_auto_commit=False) as consumer:
            for record in consumer:
                if record.offset == 2:
                    raise BoomError
                consumer.commit()

    with pytest.raises(BoomError):
        run()
    assert place.committed() == 2


@situation(
    "`asyncio.wait_for(consumer.getone(), 0.1)` times out again and again.",
    "aiokafka: no record is lost.",
    "The same.",
)
def test_getone_timed_out(empty: Place) -> None:
    async def run() -> int:
        async with AsyncConsumer(**empty.settings()) as consumer:
            consumer.subscribe([empty.topic])
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.getone(), 0.1)
            await asyncio.to_thread(empty.send, b"0", b"1")
            return (await consumer.getone()).offset + (await consumer.getone()).offset

    assert asyncio.run(run()) == 1


@situation(
    "`asyncio.wait_for(anext(records), 0.1)` times out once.",
    "aiokafka: `anext` can be called again.",
    "The same, with one iterator or a new one.",
)
def test_anext_timed_out(empty: Place) -> None:
    async def run() -> list[int]:
        async with AsyncConsumer(**empty.settings()) as consumer:
            consumer.assign(empty.partitions)
            records = aiter(consumer)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.1)
            await asyncio.to_thread(empty.send, b"0", b"1")
            return [(await anext(records)).offset, (await anext(aiter(consumer))).offset]

    assert asyncio.run(run()) == [0, 1]


@situation(
    "`getmany(tp)` asks for one partition of two.",
    "aiokafka: only records of that partition; the others wait.",
    "The same.",
)
def test_getmany_of_one_partition(admin: Admin, servers: str) -> None:
    two = make(admin, servers, "getmany-of-one", partitions=2)
    two.send(b"x", b"y", partition=1)
    with two.assigned() as consumer:
        first = consumer.getmany(two.partitions[1], timeout_ms=WAIT_MS)
        assert {tp: len(records) for tp, records in first.items()} == {two.partitions[1]: 2}
        assert [record.partition for record in poll_all(consumer, 5)] == [0] * 5


@situation(
    "`poll` takes at most one record, then all.",
    "kafka-python, Java: nothing is fetched twice and nothing is skipped.",
    "The same.",
)
def test_max_records_of_one(place: Place) -> None:
    with place.assigned() as consumer:
        assert offsets(poll_one := consumer.poll(WAIT_MS, max_records=1)) == [0], poll_one
        assert consumer.position(place.tp) == 1
        assert offsets(poll_all(consumer, 4)) == [1, 2, 3, 4]


@situation(
    "A loop of `poll(0)`.",
    "Java: records come once the group has assigned partitions.",
    "Records come; each call gives the connections a turn.",
)
def test_poll_with_time_out_zero(place: Place) -> None:
    with place.consumer() as consumer:
        found: list[Any] = []
        wait_until(lambda: bool(found.extend(consumer.poll(0)) or found), "poll(0) returns records")
        assert found[0].offset == 0


@situation(
    "Several loops over one consumer follow each other.",
    "kafka-python: the second loop continues where the first was left.",
    "The same.",
)
def test_loops_follow_each_other(place: Place) -> None:
    with place.consumer() as consumer:
        found = []
        for _ in range(5):
            for record in consumer:
                found.append(record.offset)
                break
        assert found == [0, 1, 2, 3, 4]


@situation(
    "A program wants to end its loop when no record comes for some time.",
    "kafka-python: `consumer_timeout_ms`; aiokafka ignores it, and users wonder.",
    "`poll(timeout_ms)` returns an empty list. `consumer_timeout_ms` is refused by name.",
)
def test_end_of_a_loop_by_time(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"consumer_timeout_ms .* pass a time-out to poll"):
        Consumer(**place.settings(consumer_timeout_ms=100))
    with place.assigned() as consumer:
        assert offsets(poll_all(consumer, 5)) == [0, 1, 2, 3, 4]
        assert consumer.poll(50) == []


@situation(
    "Two threads poll the same consumer.",
    "Java: ConcurrentModificationException; kafka-python: not allowed, and not checked.",
    "The calls follow each other, and every record is returned once.",
)
def test_two_threads_poll(admin: Admin, servers: str) -> None:
    many = make(admin, servers, "two-threads-poll", records=60)
    found: list[int] = []
    with many.assigned(max_poll_records=3) as consumer:

        def read() -> None:
            while len(found) < 60:
                found.extend(offsets(consumer.poll(100)))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert sorted(found) == list(range(60))


@situation(
    "`close()` while another thread is in `poll`.",
    "kafka-python: the poll may hang for ever; Java: only `wakeup` may be called.",
    "The poll raises ClientClosedError at once.",
)
def test_closed_during_a_poll(empty: Place) -> None:
    consumer = empty.consumer()
    raised: list[BaseException] = []
    entered = threading.Event()

    def read() -> None:
        entered.set()
        try:
            while True:
                consumer.poll(60_000)
        except BarnabasError as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    entered.wait()
    wait_until(lambda: len(consumer.assignment()) == 1, "the poll has joined the group")
    consumer.close()
    thread.join(10)
    assert [type(error) for error in raised] == [ClientClosedError]


@situation(
    "`wakeup()` from another thread ends a poll.",
    "Java: WakeupException; kafka-python, confluent-kafka: there is no such call.",
    "WakeupError; the next poll works as before.",
)
def test_wakeup(place: Place) -> None:
    with place.assigned() as consumer:
        poll_all(consumer, 5)
        threading.Timer(0.1, consumer.wakeup).start()
        with pytest.raises(WakeupError):
            consumer.poll(60_000)
        place.send(b"5")
        assert offsets(consumer.poll(WAIT_MS)) == [5]


@situation(
    "Calls after `close()`, and a second `close()`.",
    "confluent-kafka: RuntimeError; aiokafka: ConsumerStoppedError.",
    "ClientClosedError; the second close does nothing.",
)
def test_calls_after_close(place: Place) -> None:
    consumer = place.consumer()
    consumer.close()
    consumer.close()
    for call in (lambda: consumer.poll(10), consumer.commit, lambda: consumer.position(place.tp)):
        with pytest.raises(ClientClosedError):
            call()


# -- positions ---------------------------------------------------------------------------------------------------------


@situation(
    "`position()` before the first poll.",
    "Java: looks it up; kafka-python: may return None.",
    "It is looked up.",
)
def test_position_before_a_poll(place: Place) -> None:
    with place.assigned() as consumer:
        assert consumer.position(place.tp) == 0


@situation(
    "`seek()` right after `subscribe()`.",
    "kafka-python: AssertionError 'Unassigned partition'; confluent-kafka: _UNKNOWN_PARTITION; Java:"
    " IllegalStateException.",
    "An error that names the partition: the group has not assigned it yet. With `assign` it works at once.",
)
def test_seek_after_subscribe(place: Place) -> None:
    with place.consumer() as consumer, pytest.raises(KafkaError, match="is not assigned to this consumer"):
        consumer.seek(place.tp, 3)
    with place.assigned() as consumer:
        consumer.seek(place.tp, 3)
        assert offsets(poll_all(consumer, 2)) == [3, 4]


@situation(
    "`seek()` back after records were fetched ahead.",
    "All: the next record is the one at the new position.",
    "The same.",
)
def test_seek_back(place: Place) -> None:
    with place.assigned() as consumer:
        consumer.poll(WAIT_MS, max_records=2)
        consumer.seek(place.tp, 1)
        assert offsets(poll_all(consumer, 4)) == [1, 2, 3, 4]


@situation(
    "A program processes a record, fails, and seeks back to it within its loop.",
    "aiokafka, kafka-python: the loop returns the record again.",
    "The same.",
)
def test_seek_within_a_loop(place: Place) -> None:
    found = []
    with place.consumer() as consumer:
        for record in consumer:
            found.append(record.offset)
            if len(found) == 3:
                consumer.seek(place.tp, 1)
            if len(found) == 7:
                break
    assert found == [0, 1, 2, 1, 2, 3, 4]


@situation(
    "`seek()` to a negative offset.",
    "Java: IllegalArgumentException; kafka-python: AssertionError.",
    "ConfigError, which names `seek_to_beginning` and `seek_to_end`.",
)
def test_seek_to_a_negative_offset(place: Place) -> None:
    with place.assigned() as consumer, pytest.raises(ConfigError, match="seek_to_beginning"):
        consumer.seek(place.tp, -1)


@situation(
    "`seek_to_end()`, then another program sends records, then `poll`.",
    "kafka-python, Java: lazy, so that records sent before the poll are skipped; `position()` makes it certain.",
    "The same.",
)
def test_seek_to_end(place: Place) -> None:
    with place.assigned() as consumer:
        consumer.seek_to_end(place.tp)
        assert consumer.position(place.tp) == 5
        place.send(b"5")
        assert offsets(consumer.poll(WAIT_MS)) == [5]


@situation(
    "The position is beyond the end of the log.",
    "Java: `auto.offset.reset` decides; kafka-python, aiokafka: the same.",
    "The same.",
)
def test_position_beyond_the_end(place: Place) -> None:
    with place.assigned() as consumer:
        consumer.seek(place.tp, 99)
        assert offsets(poll_all(consumer, 5)) == [0, 1, 2, 3, 4]


@situation(
    "`auto.offset.reset=none` without a committed offset.",
    "Java: NoOffsetForPartitionException; aiokafka: NoOffsetForPartitionError.",
    "NoOffsetError, which names the partitions.",
)
def test_no_offset(place: Place) -> None:
    with place.consumer(auto_offset_reset="none") as consumer, pytest.raises(NoOffsetError, match=str(place.tp)):
        poll_all(consumer, 1)


@situation(
    "`auto.offset.reset=smallest`, as in old clients.",
    "kafka-python: accepted with a warning; librdkafka: accepted.",
    "ConfigError, which names the four values.",
)
def test_old_reset_policies(place: Place) -> None:
    with pytest.raises(ConfigError, match="earliest, latest"):
        Consumer(**place.settings(auto_offset_reset="smallest"))


@situation(
    "A new group reads nothing although the topic has records.",
    "All: `auto.offset.reset` is `latest` by default.",
    "The same default.",
)
def test_latest_is_the_default(place: Place) -> None:
    with Consumer(bootstrap_servers=place.servers, group_id=place.topic) as consumer:
        consumer.subscribe([place.topic])
        settle(consumer, owned=1)
        assert consumer.position(place.tp) == 5


@situation(
    "Times after the last record in `offsets_for_times`.",
    "kafka-python: None for the partition; Java: null.",
    "None for the partition.",
)
def test_offsets_for_times(place: Place) -> None:
    with place.assigned() as consumer:
        first = consumer.poll(WAIT_MS, max_records=1)[0]
        found = consumer.offsets_for_times({place.tp: first.timestamp})
        assert found[place.tp] is not None and found[place.tp].offset == 0
        assert consumer.offsets_for_times({place.tp: first.timestamp + 10**9}) == {place.tp: None}


@situation(
    "`beginning_offsets` and `end_offsets` of partitions that are not assigned.",
    "kafka-python, Java: work without a subscription.",
    "The same; a group is not needed.",
)
def test_bounds_without_assignment(place: Place) -> None:
    with Consumer(bootstrap_servers=place.servers) as consumer:
        assert consumer.beginning_offsets([place.tp]) == {place.tp: 0}
        assert consumer.end_offsets([place.tp]) == {place.tp: 5}


@situation(
    "How far is the consumer behind?",
    "aiokafka: `highwater`; kafka-python: `highwater`, None before the first fetch.",
    "`lag(tp)`, None before the first fetch.",
)
def test_lag(place: Place) -> None:
    with place.assigned() as consumer:
        assert consumer.lag(place.tp) is None
        consumer.poll(WAIT_MS, max_records=2)
        assert consumer.lag(place.tp) == 3


# -- pausing -----------------------------------------------------------------------------------------------------------


@situation(
    "A partition is paused while its records are in the buffer, and resumed.",
    "aiokafka, Java: no record of it is returned meanwhile, and none is lost.",
    "The same.",
)
def test_pause_keeps_records(admin: Admin, servers: str) -> None:
    two = make(admin, servers, "pause-keeps-records", partitions=2)
    two.send(b"x", partition=1)
    with two.assigned() as consumer:
        consumer.poll(WAIT_MS, max_records=1)
        consumer.pause(two.partitions[0])
        before = consumer.position(two.partitions[0])
        polled = [record.partition for _ in range(3) for record in consumer.poll(50)]
        assert 0 not in polled
        consumer.resume(two.partitions[0])
        again = poll_all(consumer, 6 - len(polled) - 1)
        assert [record.offset for record in again if record.partition == 0] == list(range(before, 5))


@situation(
    "`pause()` of a partition that is not assigned.",
    "kafka-python, Java: an error.",
    "An error that names the partition.",
)
def test_pause_of_an_unassigned_partition(place: Place) -> None:
    with place.consumer() as consumer, pytest.raises(KafkaError, match="is not assigned"):
        consumer.pause(place.tp)


@situation(
    "A paused consumer polls to stay in its group while it works for long.",
    "Java: the usual pattern; the polls return nothing and keep the membership.",
    "The same.",
)
def test_paused_consumer_stays_a_member(place: Place) -> None:
    with place.consumer(max_poll_interval_ms=800) as consumer:
        consumer.poll(WAIT_MS, max_records=1)
        consumer.pause(*consumer.assignment())
        end = time.monotonic() + 1.2
        while time.monotonic() < end:
            assert consumer.poll(100) == []
        consumer.resume(place.tp)
        assert offsets(poll_all(consumer, 4)) == [1, 2, 3, 4]
        consumer.commit()


# -- commits -----------------------------------------------------------------------------------------------------------


@situation(
    "`commit()` without `group.id`.",
    "kafka-python: AssertionError; aiokafka: IllegalOperation.",
    "ConfigError, which says to set group.id.",
)
def test_commit_without_group(place: Place) -> None:
    with Consumer(bootstrap_servers=place.servers) as consumer:
        consumer.assign(place.partitions)
        with pytest.raises(ConfigError, match=r"group\.id"):
            consumer.commit()


@situation(
    "`commit()` after a poll of which records wait in the buffer.",
    "All: what was returned is committed, not what was fetched.",
    "The same.",
)
def test_commit_of_what_was_returned(place: Place) -> None:
    with place.consumer(enable_auto_commit=False) as consumer:
        consumer.poll(WAIT_MS, max_records=2)
        consumer.commit()
    assert place.committed() == 2


@situation(
    "An offset is committed with a text.",
    "kafka-python, Java: `OffsetAndMetadata`; `committed` returns the text.",
    "The same.",
)
def test_commit_with_a_text(place: Place) -> None:
    with place.assigned() as consumer:
        consumer.commit({place.tp: OffsetAndMetadata(3, "halfway")})
        assert consumer.committed([place.tp])[place.tp] == OffsetAndMetadata(3, "halfway")


@situation(
    "`committed()` of a partition without a committed offset.",
    "kafka-python, aiokafka: None; librdkafka: OFFSET_INVALID (-1001).",
    "None.",
)
def test_committed_nothing(place: Place) -> None:
    with place.assigned() as consumer:
        assert consumer.committed([place.tp]) == {place.tp: None}


@situation(
    "Commits in the background, and `close()` at once.",
    "Java: `close` waits for them.",
    "`close` waits for `commit_nowait`.",
)
def test_commit_in_the_background(place: Place) -> None:
    with place.consumer(enable_auto_commit=False) as consumer:
        poll_all(consumer, 5)
        consumer.commit_nowait()
    assert place.committed() == 5


@situation(
    "`enable_auto_commit=False`, and the consumer is closed.",
    "All: nothing is committed.",
    "The same.",
)
def test_nothing_committed_at_close(place: Place) -> None:
    with place.consumer(enable_auto_commit=False) as consumer:
        poll_all(consumer, 5)
    assert place.committed() is None


@situation(
    "A consumer is away for longer than `max.poll.interval.ms`, and commits.",
    "Java, kafka-python: CommitFailedError; the next poll joins the group again.",
    "The same.",
)
def test_commit_after_the_poll_interval(place: Place) -> None:
    with place.consumer(enable_auto_commit=False, max_poll_interval_ms=1_000, session_timeout_ms=6_000) as consumer:
        consumer.poll(WAIT_MS, max_records=2)

        def fails() -> bool:
            try:
                consumer.commit()
            except CommitFailedError:
                return True
            return False

        wait_until(fails, "the member has left the group")
        assert offsets(poll_all(consumer, 3)) == [2, 3, 4]
        consumer.commit()


# -- subscriptions and groups ------------------------------------------------------------------------------------------


@situation(
    "`assign()`, then `subscribe()`.",
    "kafka-python: IllegalStateError; Java: IllegalStateException.",
    "An error that says to call `unsubscribe()` first, with which it works.",
)
def test_assign_then_subscribe(place: Place) -> None:
    with place.assigned() as consumer:
        with pytest.raises(KafkaError, match=r"unsubscribe\(\)"):
            consumer.subscribe([place.topic])
        consumer.unsubscribe()
        consumer.subscribe([place.topic])
        assert offsets(poll_all(consumer, 5)) == [0, 1, 2, 3, 4]


@situation(
    "`subscribe('orders')`: a text instead of a list.",
    "aiokafka: ValueError; confluent-kafka: TypeError.",
    "It is one topic.",
)
def test_subscribe_to_a_text(place: Place) -> None:
    with Consumer(**place.settings()) as consumer:
        consumer.subscribe(place.topic)
        assert consumer.subscription() == {place.topic}
        assert len(poll_all(consumer, 5)) == 5


@situation(
    "A second `subscribe()` with other topics.",
    "All: it replaces the first.",
    "The same; no record of the first topic is returned afterwards.",
)
def test_subscription_replaced(place: Place, admin: Admin, servers: str) -> None:
    other = make(admin, servers, "subscription-replaced-other", records=2)
    with place.consumer() as consumer:
        consumer.poll(WAIT_MS, max_records=1)
        consumer.subscribe([other.topic])
        found = poll_all(consumer, 2)
        assert [record.topic for record in found] == [other.topic] * 2


@situation(
    "A subscription to a topic that is created later.",
    "kafka-python, Java: found with the next metadata refresh, after up to five minutes.",
    "Found within seconds, as missing topics are looked for more often.",
)
def test_topic_created_later(admin: Admin, servers: str) -> None:
    late = Place(servers, "created-later", [TopicPartition("created-later", 0)])
    with late.consumer() as consumer:
        assert consumer.poll(50) == []
        admin.create_topic(late.topic, 1)
        late.send(b"0")
        assert offsets(poll_all(consumer, 1)) == [0]


@situation(
    "A topic is deleted and created again under a consumer, with fewer records than before.",
    "confluent-kafka: nothing is returned, and no error; Java: the position is reset if it is beyond the end.",
    "The new topic is read by `auto.offset.reset`, and waiting for more costs no more than before.",
)
def test_topic_created_again(place: Place, admin: Admin) -> None:
    with place.assigned(metadata_max_age_ms=200) as consumer:
        assert len(poll_all(consumer, 5)) == 5
        admin.delete_topics([place.topic])
        admin.create_topic(place.topic, 1)
        place.send(b"new")
        assert [record.value for record in poll_all(consumer, 1)] == [b"new"]
        fetcher = consumer._client._fetcher
        sent = 0
        real = fetcher._send

        async def send(*args: Any) -> None:
            nonlocal sent
            sent += 1
            await real(*args)

        fetcher._send = send  # type: ignore[method-assign]
        assert consumer.poll(500) == []
        assert sent <= 20  # one each fetch.max.wait.ms, which is 50


@situation(
    "A pattern, and a topic that matches it is created later.",
    "kafka-python, Java: found after `metadata.max.age.ms`.",
    "The same.",
)
def test_pattern(admin: Admin, servers: str) -> None:
    with Consumer(bootstrap_servers=servers, group_id="p", auto_offset_reset="earliest", metadata_max_age_ms=200) as c:
        c.subscribe(re.compile(r"matching-\d+"))
        assert c.poll(50) == []
        first = make(admin, servers, "matching-1", records=1)
        assert [record.topic for record in poll_all(c, 1)] == [first.topic]


@situation(
    "Partitions are added to a topic under a group.",
    "Java, kafka-python: read after the next metadata refresh.",
    "The same.",
)
def test_partitions_added(place: Place, admin: Admin) -> None:
    with place.consumer(metadata_max_age_ms=200) as consumer:
        assert len(poll_all(consumer, 5)) == 5
        admin.create_partitions({place.topic: 2})
        place.send(b"x", partition=1)
        assert [(record.partition, record.offset) for record in poll_all(consumer, 1)] == [(1, 0)]


@situation(
    "A partition that does not exist is assigned.",
    "kafka-python: hangs without a word.",
    "The poll returns nothing, a warning is logged, and `raise_problems=True` raises it.",
)
def test_assigned_partition_does_not_exist(place: Place) -> None:
    with Consumer(**place.settings()) as consumer:
        consumer.assign([TopicPartition(place.topic, 7)])
        with pytest.raises(KafkaError) as failure:
            for _ in range(50):
                consumer.poll(100, raise_problems=True)
        assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@situation(
    "Two members, one partition; the owner closes.",
    "All: the other gets the partition at once, because the owner leaves the group.",
    "The same.",
)
def test_takeover_after_close(place: Place) -> None:
    first, second = place.consumer(), place.consumer()
    with first, second:
        assert len(poll_all(first, 5)) == 5
        second.poll(20)
        first.close()
        settle(second, owned=1)
        place.send(b"5")
        assert offsets(poll_all(second, 1)) == [5]


@situation(
    "A listener's method raises.",
    "Java: poll raises; kafka-python: logged and passed over.",
    "The poll raises, and the next poll calls the method again.",
)
def test_listener_raises(place: Place) -> None:
    class Listener(RebalanceListener):
        calls = 0

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.calls += 1
            if self.calls == 1:
                raise BoomError

    listener = Listener()
    with Consumer(**place.settings()) as consumer:
        consumer.subscribe([place.topic], listener)
        with pytest.raises(BoomError):
            poll_all(consumer, 1)
        assert (len(poll_all(consumer, 5)), listener.calls) == (5, 2)


@situation(
    "`commit()` in `on_partitions_revoked`.",
    "Java, kafka-python: the usual pattern; the next owner continues there.",
    "The same.",
)
def test_commit_in_a_listener(place: Place) -> None:
    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
            return consumer.commit({place.tp: 3})

    async def run() -> None:
        async with AsyncConsumer(**place.settings(enable_auto_commit=False)) as made:
            nonlocal consumer
            consumer = made
            consumer.subscribe([place.topic], Listener())
            await consumer.getone()

    consumer: Any = None
    asyncio.run(run())
    assert place.committed() == 3


@situation(
    "`seek()` in `on_partitions_assigned`, to positions that the program keeps itself.",
    "Java, kafka-python: the first record is that of the position.",
    "The same.",
)
def test_seek_in_a_listener(place: Place) -> None:
    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            for tp in partitions:
                consumer.seek(tp, 3)

    async def run() -> int:
        nonlocal consumer
        async with AsyncConsumer(**place.settings()) as consumer:
            consumer.subscribe([place.topic], Listener())
            return (await consumer.getone()).offset

    consumer: Any = None
    assert asyncio.run(run()) == 3


@situation(
    "A consumer of a static member restarts.",
    "Java: `group.instance.id` keeps its partitions during the restart.",
    "The same; `close(leave=True)` gives them up.",
)
def test_static_member(place: Place) -> None:
    with place.consumer(group_instance_id="one", enable_auto_commit=False) as consumer:
        settle(consumer, owned=1)
    with place.consumer(enable_auto_commit=False) as other:
        for _ in range(5):
            assert other.poll(50) == []
        with place.consumer(group_instance_id="one", enable_auto_commit=False) as again:
            settle(again, other, owned=1)
            again.close(leave=True)
        settle(other, owned=1)


# -- records -----------------------------------------------------------------------------------------------------------


@situation(
    "A deserializer raises for one record (a poison pill).",
    "aiokafka, Java: every poll raises at this record; old kafka-python: logged, for ever.",
    "SerializationError at this record, with its place; the records before it are returned, and `seek` passes it.",
)
def test_poison_pill(empty: Place) -> None:
    empty.send(b"1", b"not json", b"3")
    with empty.assigned(value_deserializer=json.loads) as consumer:
        assert [record.value for record in poll_all(consumer, 1)] == [1]
        for _ in range(2):
            with pytest.raises(SerializationError, match=r"offset 1|1 of"):
                consumer.poll(WAIT_MS)
        consumer.seek(empty.tp, 2)
        assert [record.value for record in poll_all(consumer, 1)] == [3]


@situation(
    "A deserializer raises StopIteration.",
    "Old kafka-python: the rest of the batch was lost without a word.",
    "SerializationError, as for any exception; nothing is lost.",
)
def test_deserializer_raises_stop_iteration(place: Place) -> None:
    def decode(data: bytes) -> bytes:
        if data == b"2" and not passes:
            raise StopIteration
        return data

    passes: list[bool] = []
    with place.assigned(value_deserializer=decode) as consumer:
        assert offsets(poll_all(consumer, 2)) == [0, 1]
        with pytest.raises(SerializationError):
            consumer.poll(WAIT_MS)
        passes.append(True)
        assert offsets(poll_all(consumer, 3)) == [2, 3, 4]


@situation(
    "Values of None (tombstones), and a deserializer for the others.",
    "kafka-python: the deserializer gets None, and `json.loads` fails.",
    "None stays None: deserializers and serializers are called with data only.",
)
def test_tombstones(empty: Place) -> None:
    with empty.producer(value_serializer=lambda value: json.dumps(value).encode()) as producer:
        producer.send(empty.topic, None, key=b"k")
        producer.send(empty.topic, {"a": 1}, key=b"k")
    with empty.assigned(value_deserializer=json.loads) as consumer:
        assert [record.value for record in poll_all(consumer, 2)] == [None, {"a": 1}]


@situation(
    "An empty key or value is not a missing one.",
    "All: `b''` and None are different.",
    "The same.",
)
def test_empty_and_missing(empty: Place) -> None:
    with empty.producer() as producer:
        producer.send(empty.topic, b"", key=None)
        producer.send(empty.topic, None, key=b"")
    with empty.assigned() as consumer:
        assert [(record.key, record.value) for record in poll_all(consumer, 2)] == [(None, b""), (b"", None)]


@situation(
    "Headers: several of one name, and values of None.",
    "kafka-python, aiokafka: a list of pairs, in order.",
    "The same.",
)
def test_headers(empty: Place) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("b", None)]
    with empty.producer() as producer:
        producer.send(empty.topic, b"v", headers=headers)
    with empty.assigned() as consumer:
        assert [list(record.headers) for record in poll_all(consumer, 1)] == [headers]


@situation(
    "A record is larger than `max.partition.fetch.bytes`.",
    "Since KIP-74 it is returned nevertheless; before, consumers were stuck.",
    "It is returned.",
)
def test_record_larger_than_a_fetch(empty: Place) -> None:
    empty.send(b"x" * 50_000, b"after")
    with empty.assigned(max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) as consumer:
        assert [len(record.value) for record in poll_all(consumer, 2)] == [50_000, 5]


@situation(
    "Batches of every compression in one topic.",
    "kafka-python, aiokafka: an error without the module for it.",
    "All are read and written.",
)
def test_compressions(empty: Place) -> None:
    kinds = ["none", "gzip", "snappy", "lz4", "zstd"]
    for kind in kinds:
        with empty.producer(compression_type=kind) as producer:
            producer.send(empty.topic, kind.encode() * 100)
    with empty.assigned() as consumer:
        assert [record.value for record in poll_all(consumer, 5)] == [kind.encode() * 100 for kind in kinds]


# -- producers ---------------------------------------------------------------------------------------------------------


@situation(
    "A text is sent without a serializer.",
    "kafka-python: AssertionError; confluent-kafka encodes it.",
    "It is sent as UTF-8. Other types are refused by `send`, which says to pass a serializer.",
)
def test_text_without_serializer(empty: Place) -> None:
    with empty.producer() as producer:
        producer.send(empty.topic, "täxt")
        with pytest.raises((BarnabasError, TypeError), match="serializer"):
            producer.send(empty.topic, {"a": 1}).result(5)
    with empty.assigned() as consumer:
        assert [record.value for record in poll_all(consumer, 1)] == ["täxt".encode()]


@situation(
    "A record for a partition that the topic does not have.",
    "kafka-python: AssertionError 'Unrecognized partition'; Java: waits for `max.block.ms`.",
    "An error that names the partition and how many there are.",
)
def test_partition_does_not_exist(empty: Place) -> None:
    with empty.producer(max_block_ms=500) as producer, pytest.raises(BarnabasError, match=empty.topic):
        producer.send(empty.topic, b"v", partition=9).result(5)


@situation(
    "A record for a topic that does not exist, with topics not created automatically.",
    "kafka-python: KafkaTimeoutError after `max_block_ms`, which does not say why; librdkafka: _UNKNOWN_TOPIC.",
    "After `max.block.ms` an error that names the topic.",
)
def test_topic_does_not_exist(servers: str) -> None:
    with (
        Producer(bootstrap_servers=servers, max_block_ms=300) as producer,
        pytest.raises(BarnabasError, match="no-such-topic"),
    ):
        producer.send("no-such-topic", b"v").result(5)


@situation(
    "A record larger than `max.request.size`.",
    "kafka-python: MessageSizeTooLargeError; librdkafka: MSG_SIZE_TOO_LARGE; both before it is sent.",
    "The same: an error of `send`.",
)
def test_record_too_large(empty: Place) -> None:
    with empty.producer(max_request_size=1_000) as producer:
        with pytest.raises(KafkaError) as failure:
            producer.send(empty.topic, b"x" * 2_000).result(5)
        assert failure.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send(empty.topic, b"small").result(5).offset == 0


@situation(
    "A callback of `send` raises.",
    "kafka-python: logged; the producer goes on.",
    "The same.",
)
def test_callback_raises(empty: Place) -> None:
    def boom(metadata: Any, error: Any) -> None:
        raise BoomError

    with empty.producer() as producer:
        producer.send(empty.topic, b"0", on_delivery=boom)
        producer.flush()
        assert producer.send(empty.topic, b"1").result(5).offset == 1


@situation(
    "`result(timeout)` of a record is over before its acknowledgement.",
    "kafka-python: KafkaTimeoutError; the record is sent nevertheless.",
    "A TimeoutError; the record is sent nevertheless, and `result()` can be called again.",
)
def test_result_times_out(empty: Place) -> None:
    with empty.producer(linger_ms=400, batch_size=1 << 20) as producer:
        sent = producer.send(empty.topic, b"v")
        with pytest.raises(TimeoutError):
            sent.result(0.001)
        assert sent.result(10).offset == 0


@situation(
    "A producer is dropped or closed with records that are not sent yet.",
    "confluent-kafka: records are lost without `flush()`; kafka-python: `close` sends them.",
    "`close` and the end of a `with` block send them.",
)
def test_close_sends(empty: Place) -> None:
    with empty.producer(linger_ms=60_000) as producer:
        producer.send(empty.topic, b"v")
    with empty.assigned() as consumer:
        assert offsets(poll_all(consumer, 1)) == [0]


@situation(
    "A record fails, and the program looks at no future.",
    "kafka-python, aiokafka: the error is lost; confluent-kafka: a callback is needed.",
    "`flush` and `close` raise DeliveryFailedError.",
)
def test_failures_are_raised(empty: Place, admin: Admin) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, empty.topic)
    producer = empty.producer()
    producer.send(empty.topic, b"fits").result(5)
    admin.incremental_alter_configs({topic: [ConfigChange("max.message.bytes", "100")]})
    wait_until(lambda: _is_refused(empty), "the topic has its new limit")
    producer.send(empty.topic, b"x" * 5_000)
    with pytest.raises(DeliveryFailedError):
        producer.flush()
    producer.close()


def _is_refused(place: Place) -> bool:
    with place.producer() as producer:
        return producer.send(place.topic, b"x" * 5_000).exception(5) is not None


@situation(
    "Records of one key, from this producer and from Java's.",
    "kafka-python, aiokafka, Java: murmur2; librdkafka: CRC32 unless told otherwise.",
    "murmur2: the same partition as Java.",
)
def test_keys_keep_their_partition(admin: Admin, servers: str) -> None:
    many = make(admin, servers, "keys-keep-their-partition", partitions=10, records=0)
    with many.producer() as producer:
        found = [producer.send(many.topic, b"v", key=key).result(5).partition for key in (b"21", b"foobar", b"abc")]
    # The hashes are those of Kafka's UtilsTest.testMurmur2.
    hashes = [-973932308, -790332482, 479470107]
    assert found == [(value & 0x7FFFFFFF) % 10 for value in hashes]


@situation(
    "A transaction fails in its block.",
    "aiokafka: `async with producer.transaction()` aborts; no consumer with read_committed sees its records.",
    "The same.",
)
def test_transaction_aborts(empty: Place) -> None:
    def fail(producer: Producer) -> None:
        with producer.transaction():
            producer.send(empty.topic, b"aborted")
            raise BoomError

    with empty.producer(transactional_id=empty.topic) as producer:
        producer.init_transactions()
        with pytest.raises(BoomError):
            fail(producer)
        with producer.transaction():
            producer.send(empty.topic, b"committed")
    with empty.assigned(isolation_level="read_committed") as consumer:
        assert [record.value for record in poll_all(consumer, 1)] == [b"committed"]


@situation(
    "A second producer starts with the same transactional.id.",
    "All: the first is fenced, for good.",
    "The same; `can_go_on` is False.",
)
def test_fenced_producer(empty: Place) -> None:
    with empty.producer(transactional_id=empty.topic) as first, empty.producer(transactional_id=empty.topic) as second:
        first.init_transactions()
        second.init_transactions()
        first.begin_transaction()
        with pytest.raises(BarnabasError):
            first.send(empty.topic, b"v").result(10)
        with pytest.raises((KafkaError, TransactionAbortedError)):
            first.commit_transaction()
        with pytest.raises(KafkaError) as failure:
            first.abort_transaction()
        assert failure.value.code is ErrorCode.PRODUCER_FENCED
        assert (first.can_go_on, second.can_go_on) == (False, True)
        with second.transaction():
            second.send(empty.topic, b"v")


@situation(
    "Calls of a transaction in the wrong order.",
    "Java: IllegalStateException.",
    "TransactionStateError, which names the calls that are missing.",
)
def test_wrong_order_of_transactional_calls(empty: Place) -> None:
    with empty.producer(transactional_id=empty.topic) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(TransactionStateError):
                call()
        producer.init_transactions()
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            producer.send(empty.topic, b"v").result(5)


@situation(
    "`asyncio.wait_for(producer.commit_transaction(), ...)` times out.",
    "aiokafka: the commit goes on in the background.",
    "The same; the next call gets its outcome.",
)
def test_commit_of_a_transaction_timed_out(empty: Place) -> None:
    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=empty.servers, transactional_id=empty.topic) as producer:
            await producer.init_transactions()
            for _ in range(3):
                producer.begin_transaction()
                await producer.send(empty.topic, b"v")
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.commit_transaction(), 0.0001)
                await producer.commit_transaction()

    asyncio.run(run())
    with empty.assigned(isolation_level="read_committed") as consumer:
        assert len(poll_all(consumer, 3)) == 3


# -- brokers -----------------------------------------------------------------------------------------------------------


@situation(
    "No broker answers at the start.",
    "kafka-python: NoBrokersAvailable at once; confluent-kafka: only log lines; aiokafka: KafkaConnectionError.",
    "Calls retry until their time-out and say why; `raise_problems=True` makes a poll raise.",
)
def test_no_broker_at_the_start() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", reconnect_backoff_ms=10) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(50) == []
        with pytest.raises(BarnabasError, match=r"127\.0\.0\.1:1"):
            consumer.poll(200, raise_problems=True)


@situation(
    "A broker does not answer in time.",
    "kafka-python: KafkaTimeoutError; users could not tell which call waited for what.",
    "RequestTimeoutError, a TimeoutError, which names the call, its time, and what was wrong meanwhile.",
)
def test_time_out_says_why() -> None:
    with Consumer(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=200, reconnect_backoff_ms=10) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        calls: list[Callable[[], object]] = [
            lambda: consumer.position(TopicPartition("t", 0), timeout_ms=200),
            lambda: consumer.end_offsets([TopicPartition("t", 0)]),
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises(BarnabasError, match=r"127\.0\.0\.1:1") as failure:
                call()
            assert isinstance(failure.value, TimeoutError | BootstrapError)
            assert time.monotonic() - began < 10  # not the 30 seconds of request.timeout.ms


@situation(
    "A share consumer stops in the middle of its loop.",
    "Java: `close` releases what was not acknowledged.",
    "The same: what the program has not asked beyond is delivered again.",
)
def test_share_consumer_left_in_a_loop(place: Place, admin: Admin) -> None:
    group = ConfigResource(ConfigResourceType.GROUP, place.topic)
    admin.incremental_alter_configs({group: [ConfigChange("share.auto.offset.reset", "earliest")]})
    found = []
    for _ in range(2):
        with ShareConsumer(bootstrap_servers=place.servers, group_id=place.topic) as consumer:
            consumer.subscribe([place.topic])
            for record in consumer:
                found.append(record.offset)
                if len(found) >= 3:
                    break
    assert found[:4] == [0, 1, 2, 2]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_table_of_situations_is_current(request: pytest.FixtureRequest) -> None:
    rows = [f"| {number} | {' | '.join(row)} |" for number, row in enumerate(SITUATIONS, 1)]
    table = "\n".join(["| | Situation | Other clients | Barnabas |", "|---|---|---|---|", *rows]) + "\n"
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    expected = before + BEGIN + table + END + rest.split(END)[1]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(expected, encoding="utf-8")
    assert request.config.getoption("--rewrite") or text == expected
    assert len(SITUATIONS) >= 60
