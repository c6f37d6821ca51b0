"""The calls that Spark makes to a stream reader, against offsets that the test changes."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.values import RegisteredSchema, Schema, SchemaType
from barnabas.spark.errors import DataLossError, OptionError, SparkSourceError
from barnabas.spark.records import registries
from barnabas.spark.schema import DEFAULT_COLUMNS
from barnabas.spark.source import reader as source
from barnabas.spark.source.planner import LogOffsets, PartitionRange, asked_epochs, diverged_at
from barnabas.spark.source.positions import (
    Boundary,
    Offsets,
    Position,
    SourceSubscription,
    boundary_queries,
    resolve_boundary,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeLog:
    """Replaces a `LogClient`."""

    def __init__(self, latest: dict[TopicPartition, int]) -> None:
        self.latest_offsets = latest
        self.earliest_offsets = dict.fromkeys(latest, 0)
        self.committed: list[tuple[str, Position]] = []
        self.refuses_commits = False
        self.ids: dict[str, str] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.epoch_ends: dict[TopicPartition, dict[int, int]] = {}
        """Where each leader epoch ends in the log of a partition, as its leader says."""

    def reach(self) -> None:
        pass

    def partitions(self, subscription: SourceSubscription) -> list[TopicPartition]:
        return sorted(self.latest_offsets)

    def log_view(self, partitions: list[TopicPartition]) -> LogOffsets:
        earliest = {tp: self.earliest_offsets[tp] for tp in partitions}
        return LogOffsets(earliest, {tp: self.latest_offsets[tp] for tp in partitions}, self.ids, self.epochs)

    def diverged(self, position: Position, epochs: Offsets, ids: dict[str, str]) -> dict[TopicPartition, int]:
        asked = asked_epochs(position, epochs, ids)
        return diverged_at(position, {tp: self.epoch_ends[tp][epoch] for tp, epoch in asked.items()})

    def topic_ids(self, topics: Any, *, fresh: bool = False) -> dict[str, str]:
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def with_open_transactions(self, log: LogOffsets, positions: object) -> LogOffsets:
        return log  # no transaction is open here

    def earliest(self, partitions: Any) -> dict[TopicPartition, int]:
        return {tp: self.earliest_offsets[tp] for tp in partitions if tp in self.latest_offsets}

    def resolve(
        self, boundary: Boundary, partitions: Any, log: LogOffsets, *, starting: bool
    ) -> dict[TopicPartition, int]:
        queries = boundary_queries(boundary, partitions)
        answers = {tp: log.latest[tp] if at == -1 else log.earliest[tp] for tp, at in queries.items()}
        return resolve_boundary(boundary, answers, partitions, log.latest, starting=starting)

    def bytes_per_offset(self, log: LogOffsets) -> dict[TopicPartition, float]:
        return dict.fromkeys(log.latest, 100.0)

    def commit(self, group: str, position: Position) -> None:
        if self.refuses_commits:
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        self.committed.append((group, position))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> FakeLog:
    fake = FakeLog({T0: 100})
    monkeypatch.setattr(source, "connect", lambda settings: fake)
    return fake


def raw_schema(names: tuple[str, ...]) -> Any:
    """As much of a StructType as the readers of raw records use."""
    return SimpleNamespace(names=list(names))


def reader(**options: str) -> source.StreamReader:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "latest", **options}
    return source.stream_reader(given, raw_schema(DEFAULT_COLUMNS))


def ranges(stream: source.StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[PartitionRange]:
    return [task.range for task in stream.partitions(start, end)]


def at(zero: int, **others: int) -> dict[str, Any]:
    return {"t": {"0": zero, **{name.removeprefix("p"): offset for name, offset in others.items()}}}


def test_empty_first_micro_batch_stores_the_initial_offset(log: FakeLog) -> None:
    stream = reader()
    limit = stream.getDefaultReadLimit()
    first = stream.initialOffset()
    log.latest_offsets[T0] = 138
    assert stream.initialOffset() == first == at(100)  # Spark asks twice and expects the same offset
    assert stream.latestOffset(first, limit) == at(100)
    assert ranges(stream, at(100), at(100)) == []
    assert stream.latestOffset(at(100), limit) == at(138)


def test_replayed_first_micro_batch_keeps_the_stored_offset(log: FakeLog) -> None:
    log.latest_offsets[T0] = 138  # a driver that has died since wrote 100 to the offset log
    stream = reader()
    assert stream.initialOffset() == at(138)
    assert ranges(stream, at(138), at(100)) == []
    end = stream.latestOffset(at(100), stream.getDefaultReadLimit())
    assert ranges(stream, at(100), end) == [PartitionRange(T0, 100, 138)]


def test_replay_with_unchanged_log_plans_no_second_empty_batch(log: FakeLog) -> None:
    # An AvailableNow query would take an unchanged offset for the end of the data, and stop early.
    stream = reader(startingOffsets="earliest")
    assert stream.initialOffset() == at(0)
    assert ranges(stream, at(0), at(0)) == []
    assert stream.latestOffset(at(0), stream.getDefaultReadLimit()) == at(100)


def test_trigger_once_reads_immediately_and_without_limits(log: FakeLog) -> None:
    stream = reader(startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert stream.latestOffset(stream.initialOffset(), ReadAllAvailable()) == at(100)


@pytest.mark.parametrize("starting", ["earliest", '{"t": {"0": 40}}', '{"t": {"0": -2}}'])
def test_earliest_and_explicit_starting_offsets_need_no_empty_batch(log: FakeLog, starting: str) -> None:
    stream = reader(startingOffsets=starting)
    assert stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit()) == at(100)


def test_available_now_reads_to_the_target(log: FakeLog) -> None:
    stream = reader(startingOffsets="earliest", maxOffsetsPerTrigger="60")
    assert isinstance(stream, SupportsTriggerAvailableNow)
    stream.prepareForTriggerAvailableNow()
    limit = stream.getDefaultReadLimit()
    log.latest_offsets.update({T0: 500, T1: 5})
    log.earliest_offsets[T1] = 0
    position = stream.initialOffset()
    seen = []
    while (end := stream.latestOffset(position, limit)) != position:
        seen.append(end)
        position = end
    assert seen == [at(60, p1=0), at(100, p1=0)] or seen == [at(60), at(100)]
    assert stream.reportLatestOffset() == at(500, p1=5)


def test_group_offsets_follow_including_the_last_micro_batch(log: FakeLog) -> None:
    stream = reader(startingOffsets="earliest", groupId="g")
    limit = stream.getDefaultReadLimit()
    first = stream.latestOffset(stream.initialOffset(), limit)
    end = stream.latestOffset(first, limit)
    stream.commit(first)
    # Spark does not call commit() for the last micro-batch; the next plan commits
    assert stream.latestOffset(end, limit) == end
    assert log.committed == [("g", Position({T0: 0})), ("g", Position({T0: 100}))]


def test_a_failed_group_commit_does_not_stop_the_query(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    log.refuses_commits = True
    stream = reader(groupId="g")
    stream.commit(at(5))
    assert "could not be committed for group g" in caplog.text


def test_losses_stop_the_query_in_planning_and_reading(log: FakeLog) -> None:
    stream = reader()
    log.earliest_offsets[T0] = 60
    with pytest.raises(DataLossError, match="offsets 40 to 59"):
        stream.latestOffset(at(40), stream.getDefaultReadLimit())
    with pytest.raises(DataLossError, match="offsets 40 to 59"):
        stream.partitions(at(40), at(100))


def test_reported_losses_are_logged_once(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    stream = reader(failOnDataLoss="report")
    log.earliest_offsets[T0] = 60
    end = stream.latestOffset(at(40), stream.getDefaultReadLimit())
    assert end == {"$lost": {"t": {"0": 20}}, "t": {"0": 100}}
    assert ranges(stream, at(40), end) == [PartitionRange(T0, 60, 100)]
    assert caplog.text.count("data loss") == 1
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def test_missing_topics_raise_an_error(log: FakeLog) -> None:
    with pytest.raises(SparkSourceError, match="topics u: they do not exist"):
        source.stream_reader(
            {"kafka.bootstrap.servers": "h:1", "subscribe": "t,u"}, raw_schema(DEFAULT_COLUMNS)
        ).initialOffset()


def test_readers_and_tasks_can_be_pickled_and_have_no_push_filters(log: FakeLog) -> None:
    stream = reader()
    copy: source.StreamReader = pickle.loads(pickle.dumps(stream))
    assert copy.initialOffset() == at(100)
    task: source.Task = pickle.loads(pickle.dumps(source.Task(PartitionRange(T0, 1, 2))))
    assert task.range == PartitionRange(T0, 1, 2)
    assert source.BatchReader.pushFilters is DataSourceReader.pushFilters
    assert isinstance(reader().getDefaultReadLimit(), ReadLimit)


def test_batch_reader_plans_ranges_and_splits_them(log: FakeLog) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "maxRecordsPerPartition": "60"}
    batch = source.batch_reader(options, raw_schema(("value",)))
    assert [task.range for task in batch.partitions()] == [PartitionRange(T0, 0, 50), PartitionRange(T0, 50, 100)]
    log.latest_offsets.clear()
    with pytest.raises(SparkSourceError, match="do not exist"):
        batch.partitions()


def test_invalid_options_are_rejected_without_a_request() -> None:
    with pytest.raises(OptionError, match="endingOffsets is not valid"):
        reader(endingOffsets="latest")


# -- topics that are deleted and created again


def replaced_log(log: FakeLog) -> dict[str, Any]:
    """A query is at 50 of the topic A; then there is the topic B of the same name, with 150 records."""
    log.ids, log.latest_offsets[T0] = {"t": "A"}, 50
    stream = reader(startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert end == {"$ids": {"t": "A"}, "t": {"0": 50}}
    log.ids, log.latest_offsets[T0] = {"t": "B"}, 150
    return end


def test_a_topic_that_was_created_again_is_an_error_that_names_both(log: FakeLog) -> None:
    end = replaced_log(log)
    stream = reader()
    with pytest.raises(DataLossError, match=r"topic t was replaced: .* with id A, .* with id B .*offset 50"):
        stream.latestOffset(end, stream.getDefaultReadLimit())


@pytest.mark.parametrize("choice", ["false", "report"])
def test_a_topic_that_was_created_again_is_read_from_its_beginning(log: FakeLog, choice: str) -> None:
    start = replaced_log(log)
    stream = reader(failOnDataLoss=choice)
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == {"$ids": {"t": "B"}, "t": {"0": 150}}
    assert ranges(stream, start, end) == [PartitionRange(T0, 0, 150, "B")]
    assert ranges(stream, start, end) == ranges(reader(failOnDataLoss=choice), start, end)  # repeated after a restart
    log.latest_offsets[T0] = 170
    assert ranges(stream, end, stream.latestOffset(end, stream.getDefaultReadLimit())) == [
        PartitionRange(T0, 150, 170, "B")
    ]


def test_a_new_topic_that_is_shorter_than_the_position_is_read_as_a_whole(log: FakeLog) -> None:
    start = replaced_log(log)
    log.latest_offsets[T0] = 20
    stream = reader(failOnDataLoss="false")
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert ranges(stream, start, end) == [PartitionRange(T0, 0, 20, "B")]


def test_a_planned_micro_batch_is_not_read_from_another_topic(log: FakeLog) -> None:
    end = replaced_log(log)
    log.latest_offsets[T0] = 40
    start: dict[str, Any] = {"$ids": {"t": "A"}, "t": {"0": 30}}
    with pytest.raises(DataLossError, match="was replaced"):
        ranges(reader(), start, end)
    stream = reader(failOnDataLoss="report")
    assert ranges(stream, start, end) == []
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == {
        "$ids": {"t": "B"},
        "$lost": {"t": {"0": 20}},
        "t": {"0": 40},
    }


def elected(log: FakeLog, *, end: int, latest: int) -> dict[str, Any]:
    """The position 50 of leader epoch 4, which now ends at `end` in the log of the leader with epoch 5."""
    log.epochs[T0], log.epoch_ends[T0], log.latest_offsets[T0] = 5, {4: end, 5: latest}, latest
    return {"$epochs": {"t": {"0": 4}}, "t": {"0": 50}}


def test_an_election_that_lost_nothing_is_no_micro_batch_and_later_records_have_the_new_epoch(log: FakeLog) -> None:
    start, stream = elected(log, end=50, latest=50), reader()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    log.latest_offsets[T0] = 60
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == {"$epochs": {"t": {"0": 5}}, "t": {"0": 60}}
    assert ranges(stream, start, end) == [PartitionRange(T0, 50, 60)]
    checkpoint = {"t": {"0": 50}}  # of an earlier release
    assert stream.latestOffset(checkpoint, stream.getDefaultReadLimit()) == end


@pytest.mark.parametrize("latest", [45, 50, 80])
def test_a_log_that_was_truncated_and_written_again_is_noticed_wherever_it_ends(log: FakeLog, latest: int) -> None:
    start, stream = elected(log, end=40, latest=latest), reader()
    with pytest.raises(DataLossError, match=r"has read up to offset 50, and the log has other records from offset 40"):
        stream.latestOffset(start, stream.getDefaultReadLimit())
    stream = reader(failOnDataLoss="false")
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert end == {"$epochs": {"t": {"0": 5}}, "t": {"0": latest}}
    assert ranges(stream, start, end) == [PartitionRange(T0, 40, latest)]
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end


def test_a_planned_micro_batch_is_not_read_from_records_that_took_the_place_of_others(log: FakeLog) -> None:
    end = elected(log, end=40, latest=80)
    start = {"$epochs": {"t": {"0": 4}}, "t": {"0": 30}}
    with pytest.raises(DataLossError, match=r"other records from offset 40"):
        ranges(reader(), start, end)
    assert ranges(reader(failOnDataLoss="false"), start, end) == [PartitionRange(T0, 30, 50)]


def test_a_checkpoint_without_ids_adopts_those_of_the_moment_once(log: FakeLog) -> None:
    stream = reader()
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset(at(100), limit) == at(100)
    log.ids = {"t": "A"}
    adopted = stream.latestOffset(at(100), limit)
    assert adopted == {"$ids": {"t": "A"}, **at(100)}
    assert ranges(stream, at(100), adopted) == []
    assert stream.latestOffset(adopted, limit) == adopted
    log.ids = {}  # a broker without ids, in a cluster that is being downgraded
    assert stream.latestOffset(adopted, limit) == adopted
    log.ids = {"t": "B"}
    with pytest.raises(DataLossError, match="was replaced"):
        stream.latestOffset(adopted, limit)


def test_starting_offsets_may_be_a_position_that_was_copied(log: FakeLog) -> None:
    log.ids = {"t": "A"}
    stream = reader(startingOffsets='{"$ids": {"t": "Z"}, "$lost": {"t": {"0": 3}}, "t": {"0": 40}}')
    assert stream.initialOffset() == {"$ids": {"t": "A"}, **at(40)}


# -- a registry whose ids began anew


class FakeRegistry:
    """The schemas of a registry by their ids."""

    def __init__(self) -> None:
        self.schemas = {17: "long"}

    def schema(self, schema_id: int, *, subject: str = "") -> Schema:
        if schema_id not in self.schemas:
            raise RegistryError(Code.SCHEMA_NOT_FOUND, "not found")
        return Schema(f'"{self.schemas[schema_id]}"', SchemaType.AVRO)


@pytest.mark.parametrize("found", ["string", None])
def test_a_registry_whose_ids_began_anew_is_an_error(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch, found: str | None
) -> None:
    fake = FakeRegistry()
    monkeypatch.setattr(registries, "registry_client", lambda _: fake)
    pinned = RegisteredSchema("t-value", 1, 17, fake.schema(17))
    formats = SimpleNamespace(registry=SimpleNamespace(url="http://r:8081"), typed=(), dead_letters=None)

    def typed_reader(**options: str) -> source.StreamReader:
        stream = reader(startingOffsets="earliest", **options)
        stream._typed = SimpleNamespace(formats=formats, pinned={"value": pinned})  # type: ignore[assignment]
        return stream

    stream = typed_reader()
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert end["$schemas"]["value"].startswith("17:")
    typed_reader().latestOffset(end, stream.getDefaultReadLimit())
    fake.schemas = {17: found} if found else {}
    with pytest.raises(DataLossError, match=r"schema 17 of the registry at http://r:8081 was replaced: .*began anew"):
        typed_reader().latestOffset(end, stream.getDefaultReadLimit())
    assert typed_reader(failOnDataLoss="false").latestOffset(end, stream.getDefaultReadLimit()) == end
