"""examples/streams: every example gives the result that its Kafka Streams counterpart would give.

Every micro-batch of a stateful query takes about a second, so CI runs three examples, and `make soak` the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from examples.streams import (
    deduplicate,
    interactive,
    ktable_join,
    sessions,
    stream_joins,
    table_joins,
    timers,
    windowed_counts,
    word_count,
)
from examples.streams.topics import ROCKSDB, create_topics
from pyspark.sql import SparkSession

from barnabas import Consumer, Producer

pytestmark = pytest.mark.system
PARTITIONS = 2
SETTINGS = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB, "spark.sql.shuffle.partitions": "1"}

Change = tuple[str, str | None] | tuple[str, str | None, int]
"""A record's key, value and, where it matters, timestamp in ms."""
Step = dict[str, list[Change]]
"""The records that are produced to each topic, and then processed, before the next step."""
Run = Callable[..., set[tuple[str, str]]]


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture
def run(spark: SparkSession, servers: str, tmp_path: Path) -> Run:
    """Runs an example over these steps. Returns the committed records of its output topic."""

    def run_steps(example: ModuleType, *steps: Step) -> set[tuple[str, str]]:
        create_topics(servers, [*example.INPUTS, example.OUTPUT], PARTITIONS)
        produce(servers, steps[0])
        query = example.build(spark, servers, tmp_path / "checkpoint").start()
        try:
            query.processAllAvailable()
            for step in steps[1:]:
                produce(servers, step)
                query.processAllAvailable()
        finally:
            query.stop()
        found = committed(servers, example.OUTPUT)
        assert len(set(found)) == len(found), "a record was written twice"
        return set(found)

    return run_steps


def produce(servers: str, step: Step) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for topic, changes in step.items():
            for key, value, *when in changes:
                timestamp = when[0] if when else None
                encoded = None if value is None else value.encode()
                producer.send(topic, encoded, key=key.encode(), timestamp=timestamp)


def committed(servers: str, topic: str) -> list[tuple[str, str]]:
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(1_000)
    return [(record.key.decode(), record.value.decode()) for record in found]


def at(minute: int, **more: str) -> str:
    others = "".join(f', "{name}": "{value}"' for name, value in more.items())
    return f'{{"at": "2024-01-01T10:{minute:02}:00Z"{others}}}'


def test_word_counts_are_a_table_that_can_be_queried(spark: SparkSession, servers: str, run: Run) -> None:
    lines: list[Step] = [
        {"lines": [("a", "Hello, hello world")]},
        {"lines": [("b", "a world of lines"), ("a", "hello again")]},
    ]
    assert run(word_count, *lines) == {
        *(("hello", "2"), ("world", "1")),
        *(("a", "1"), ("world", "2"), ("of", "1"), ("lines", "1"), ("hello", "3"), ("again", "1")),
    }
    assert interactive.count_of(spark, servers, "hello") == 3
    assert interactive.count_of(spark, servers, "absent") == 0
    assert interactive.most_frequent(spark, servers, 3) == ["hello", "world", "a"]
    assert interactive.changes(spark, servers).isStreaming


def test_a_windowed_count_includes_late_views_until_its_window_closes(run: Run) -> None:
    views: list[Step] = [
        {"views": [("p", at(1)), ("p", at(12)), ("q", at(2))]},
        {"views": [("p", at(3)), ("q", at(31))]},  # 10:03 is late, but the watermark is 10:07
        {"views": [("p", at(4)), ("q", at(50))]},  # 10:04 is too late: the window closed at 10:26
    ]
    assert run(windowed_counts, *views) == {
        ("p", '{"start":"10:00","count":2}'),
        ("q", '{"start":"10:00","count":1}'),
        ("p", '{"start":"10:10","count":1}'),
        ("q", '{"start":"10:30","count":1}'),
    }


@pytest.mark.slow
def test_orders_meet_tables_without_deleted_keys(run: Run) -> None:
    step: Step = {
        "customers": [
            ("c1", '{"name": "Ann", "country": "de"}'),
            ("c2", '{"name": "Bo", "country": "se"}'),
            ("c1", '{"name": "Anna", "country": "fr"}'),
            ("c3", '{"name": "Cy", "country": "fr"}'),
            ("c3", None),
        ],
        "countries": [("de", "Germany"), ("fr", "France")],
        "orders": [(f"o{i}", f'{{"customer": "c{i}", "amount": {i}}}') for i in (1, 2, 3)],
    }
    assert run(table_joins, step) == {
        ("o1", '{"amount":1,"name":"Anna","country_name":"France"}'),
        ("o2", '{"amount":2,"name":"Bo"}'),  # a left join with the countries, and an inner join with the customers
    }


@pytest.mark.slow
def test_a_payment_meets_the_rate_of_its_time(run: Run) -> None:
    steps: list[Step] = [
        {
            "rates": [("usd", "0.5", 1_000), ("usd", "0.9", 3_000), ("usd", None, 5_000), ("sek", "0.1", 1_000)],
            "payments": [("usd", "10", 2_000), ("usd", "10", 4_000), ("usd", "10", 6_000), ("chf", "1", 2_000)],
        },
        {"payments": [("sek", "30", 7_000), ("usd", "20", 7_000)]},
    ]
    assert run(ktable_join, *steps) == {("usd", "5.00"), ("usd", "9.00"), ("sek", "3.00")}


@pytest.mark.slow
def test_an_impression_without_a_click_is_written_when_none_can_come(run: Run) -> None:
    steps: list[Step] = [
        {"impressions": [("a", at(1)), ("b", at(2))], "clicks": [("a", at(5)), ("b", at(30))]},
        {"impressions": [("z", at(50))], "clicks": [("z", at(51))]},
    ]
    assert run(stream_joins, *steps) == {("a", '{"seconds":240}'), ("b", "{}"), ("z", '{"seconds":60}')}


@pytest.mark.slow
def test_a_visit_ends_after_ten_minutes_without_a_view(run: Run) -> None:
    steps: list[Step] = [
        {"user-views": [("u", at(1)), ("u", at(9)), ("v", at(1))]},
        {"user-views": [("u", at(20)), ("w", at(50))]},
    ]
    assert run(sessions, *steps) == {
        ("u", '{"count":2,"minutes":8}'),
        ("u", '{"count":1,"minutes":0}'),
        ("v", '{"count":1,"minutes":0}'),
    }


@pytest.mark.slow
def test_a_repeated_event_is_dropped(run: Run) -> None:
    steps: list[Step] = [
        {"events": [("k", at(1, id="1")), ("k", at(2, id="2")), ("k", at(2, id="1"))]},
        {"events": [("k", at(3, id="1")), ("k", at(3, id="3"))]},
    ]
    assert {value[-4:] for _, value in run(deduplicate, *steps)} == {'"1"}', '"2"}', '"3"}'}


def test_a_timer_expires_for_the_device_that_is_silent(run: Run) -> None:
    steps: list[Step] = [
        {"reports": [("one", at(1)), ("two", at(1))]},
        {"reports": [("two", at(20))]},
    ]
    ten_past = 1_704_103_200_000 + 60_000  # 10:01 of that day
    assert run(timers, *steps) == {("one", f"silent since {ten_past}")}
