"""The records of a Connect cluster's topics, and the state that they build."""

from __future__ import annotations

import json

import pytest

from barnabas.spark.connectors.connect.cluster.records import (
    CommitRecord,
    ConfigRecords,
    ConnectorRecord,
    ConnectorStatusRecord,
    ConnectRecord,
    LoggerRecord,
    RestartRecord,
    StatusRecord,
    TargetRecord,
    TaskRecord,
    TaskStatusRecord,
    TopicUseRecord,
    decode_status,
    encode_status,
)
from barnabas.spark.connectors.connect.cluster.state import ConnectState, StatusBoard
from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorState,
    ConnectStatus,
    RestartRequest,
    TargetState,
    TopicUse,
)

CODEC = ConfigRecords()
STATUS = ConnectStatus(ConnectorState.RUNNING, "host:8083", 3, None, "1.0")
CONFIG_RECORDS: list[ConnectRecord] = [
    ConnectorRecord("a-1", {"x": "ä"}),
    ConnectorRecord("a-1", None),
    TaskRecord("a-1", 12, {"x": "y"}),
    TaskRecord("a-1", 0, None),
    CommitRecord("a-1", 2),
    CommitRecord("a-1", None),
    TargetRecord("a", TargetState.STOPPED),
    TargetRecord("a", None),
    RestartRecord("a", RestartRequest(include_tasks=True)),
    RestartRecord("a", RestartRequest(only_failed=True, task=1)),
    LoggerRecord("barnabas.client", "DEBUG"),
]
STATUS_RECORDS: list[StatusRecord] = [
    ConnectorStatusRecord("a-1", STATUS),
    ConnectorStatusRecord("a", None),
    TaskStatusRecord("a-1", 7, ConnectStatus(ConnectorState.FAILED, "h:1", 4, "trace")),
    TaskStatusRecord("a", 0, None),
    TopicUseRecord("a-connector-b", "orders", TopicUse("orders", "a-connector-b", 1, 1700)),
    TopicUseRecord("a", "orders", None),
]


@pytest.mark.parametrize("record", CONFIG_RECORDS, ids=lambda record: type(record).__name__)
def test_config_records_round_trip(record: ConnectRecord) -> None:
    assert CODEC.decode(*CODEC.encode(record)) == record


@pytest.mark.parametrize("record", STATUS_RECORDS, ids=lambda record: type(record).__name__)
def test_status_records_round_trip(record: StatusRecord) -> None:
    assert decode_status(*encode_status(record)) == record


def test_records_have_the_bytes_of_kafka_connect() -> None:
    """Keys and fields as in KafkaConfigBackingStore and KafkaStatusBackingStore of Apache Kafka 4."""
    assert CODEC.encode(ConnectorRecord("n", {"a": "b"})) == (b"connector-n", b'{"properties":{"a":"b"}}')
    assert CODEC.encode(TaskRecord("n", 0, {"a": "b"})) == (b"task-n-0", b'{"properties":{"a":"b"}}')
    assert CODEC.encode(CommitRecord("n", 1)) == (b"commit-n", b'{"tasks":1}')
    stopped = b'{"state":"PAUSED","state.v2":"STOPPED"}'
    assert CODEC.encode(TargetRecord("n", TargetState.STOPPED)) == (b"target-state-n", stopped)
    assert CODEC.encode(RestartRecord("n", RestartRequest(include_tasks=True))) == (
        b"restart-connector-n",
        b'{"include-tasks":true,"only-failed":false}',
    )
    key, value = encode_status(TopicUseRecord("n", "t", TopicUse("t", "n", 0, 5)))
    assert key == b"status-topic-t:connector-n"
    assert json.loads(value or b"") == {"topic": {"name": "t", "connector": "n", "task": 0, "discoverTimestamp": 5}}


def test_records_of_older_and_other_workers_are_read() -> None:
    assert CODEC.decode(b"target-state-n", b'{"state":"PAUSED"}') == TargetRecord("n", TargetState.PAUSED)
    assert CODEC.decode(b"session-key", b'{"key":"x","algorithm":"HmacSHA256","creation-timestamp":1}') is None
    assert CODEC.decode(b"tasks-fencing-n", b'{"task-count":1}') is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"connector-n", b"{"),
        (b"connector-n", b"[]"),
        (b"connector-n", b"{}"),
        (b"task-n", b'{"properties":{}}'),
        (b"commit-n", b'{"tasks":-1}'),
        (b"commit-n", b'{"tasks":true}'),
        (b"target-state-n", b'{"state":"RUNNING"}'),
        (b"restart-connector-n", b'{"include-tasks":1}'),
        (b"\xff", b"{}"),
    ],
)
def test_a_malformed_record_raises_value_error(key: bytes, value: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CODEC.decode(key, value)


def test_tasks_count_from_the_commit_record_on() -> None:
    state = ConnectState()
    state.apply(ConnectorRecord("n", {"a": "1"}))
    state.apply(TaskRecord("n", 0, {"t": "0"}))
    state.apply(TaskRecord("n", 1, {"t": "1"}))
    assert state.connector("n").tasks == ()
    state.apply(CommitRecord("n", 2))
    assert state.connector("n").tasks == ({"t": "0"}, {"t": "1"})
    state.apply(CommitRecord("n", 0))
    assert state.connector("n").tasks == ()


def test_a_new_configuration_changes_the_revision_and_the_same_one_does_not() -> None:
    state = ConnectState()
    state.apply(TargetRecord("n", TargetState.PAUSED))
    state.apply(ConnectorRecord("n", {"a": "1"}))
    first = state.connector("n")
    assert first.target is TargetState.PAUSED
    state.apply(ConnectorRecord("n", {"a": "1"}))
    assert state.connector("n") == first
    state.apply(ConnectorRecord("n", {"a": "2"}))
    assert state.connector("n").revision > first.revision
    state.apply(ConnectorRecord("n", None))
    state.apply(ConnectorRecord("n", {"a": "2"}))
    assert state.connector("n").target is TargetState.STARTED


def test_the_last_status_in_the_topic_counts_also_after_the_generations_began_anew() -> None:
    """The group is deleted when it is empty, so that the generations of the next workers begin at 1."""
    board = StatusBoard()
    for key in (ConnectorStatusRecord, lambda name, status: TaskStatusRecord(name, 0, status)):
        board.apply(key("n", ConnectStatus(ConnectorState.UNASSIGNED, "dead:1", 7)))
        board.apply(key("n", ConnectStatus(ConnectorState.RUNNING, "new:1", 1)))
    running = ConnectStatus(ConnectorState.RUNNING, "new:1", 1)
    assert (board.connector("n"), board.tasks("n")) == (running, {0: running})


@pytest.mark.parametrize(
    ("state", "worker", "generation", "expected"),
    [
        (ConnectorState.FAILED, "own:1", 4, True),
        (ConnectorState.UNASSIGNED, "own:1", 4, True),
        (ConnectorState.FAILED, "other:1", 5, True),
        (ConnectorState.FAILED, "other:1", 6, True),
        (ConnectorState.FAILED, "other:1", 4, False),
        (ConnectorState.UNASSIGNED, "other:1", 4, False),
        (ConnectorState.UNASSIGNED, "other:1", 7, False),
    ],
)
def test_what_a_worker_that_may_have_been_replaced_can_write(
    state: ConnectorState, worker: str, generation: int, expected: bool
) -> None:
    board = StatusBoard()
    status = ConnectStatus(state, worker, generation)
    records = [ConnectorStatusRecord("n", status), TaskStatusRecord("n", 0, status)]
    assert [board.may_write(record) for record in records] == [True, True]
    known = ConnectStatus(ConnectorState.RUNNING, "own:1", 5)
    board.apply(ConnectorStatusRecord("n", known))
    board.apply(TaskStatusRecord("n", 0, known))
    assert [board.may_write(record) for record in records] == [expected, expected]
    assert board.may_write(ConnectorStatusRecord("n", None))
