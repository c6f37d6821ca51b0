"""Micro-batches by the writers' own methods: replays, lost attempts, killed drivers, brokers that time out."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark.serializers import CloudPickleSerializer

from barnabas.client.blocking import Admin
from barnabas.client.values import ConfigResource, HandedOverTransaction
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.spark import connection
from barnabas.spark.connection import discard, shared
from barnabas.spark.delivery import kafka_ledger
from barnabas.spark.delivery.client import DeliveryClient
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.delivery.records import DeliveryState
from barnabas.spark.errors import DeliveryError, RecoveryError, SinkError
from barnabas.spark.options import QueryMode
from barnabas.spark.sink import tasks
from barnabas.spark.sink import writer as sink_writer
from barnabas.spark.sink.options import TWO_PHASE_SETTING, parse_sink_options
from barnabas.spark.sink.rows import row_layout
from barnabas.spark.sink.tasks import Attempt, TransactionalWriter, Written
from barnabas.spark.sink.writer import BatchWriter, StreamWriter
from barnabas.spark.source.positions import SourceSubscription
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.pages import DOCS
from tests.system.spark.broker import committed

pytestmark = pytest.mark.system
PARTITIONS = 3


@dataclass(frozen=True)
class Broker:
    bootstrap_servers: str
    two_phase: bool


@pytest.fixture(scope="module", params=[True, False], ids=["two-phase", "time-outs"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with EmbeddedBroker({"transaction.two.phase.commit.enable": str(request.param).lower()}) as running:
        yield Broker(running.bootstrap_servers, request.param)


@dataclass
class Query:
    """A streaming query with its checkpoint. Each `driver` is a process of Spark, as far as the sink can tell."""

    broker: Broker
    folder: Path
    more: dict[str, str] = field(default_factory=dict)
    topic: str = field(default_factory=lambda: f"t-{uuid4().hex[:8]}")
    query_id: str = field(default_factory=lambda: str(uuid4()))
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        with Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            admin.create_topic(self.topic, PARTITIONS, 1)
        self.restart()

    def options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "topic": self.topic,
            "checkpointLocation": str(self.folder),
        } | self.more

    def restart(self, *, anew: bool = False) -> None:
        """Start the query again, after the death of its driver; `anew` with a deleted checkpoint."""
        if anew:
            self.query_id = str(uuid4())
        self.run_id = str(uuid4())
        (self.folder / "metadata").write_text(json.dumps({"id": self.query_id}))
        for kind in (DeliveryClient, TransactionalWriter):
            discard(kind, self.parsed.client)

    @property
    def parsed(self) -> object:
        return parse_sink_options(self.options(), QueryMode.STREAM)

    def writer(self) -> StreamWriter:
        return StreamWriter(self.parsed, row_layout({"key": "string", "value": "string"}, self.parsed))

    def plan(self) -> StreamWriter:
        """The copy of the planned writer that tasks get. PySpark pickles the writer with this serializer."""
        return pickle.loads(CloudPickleSerializer().dumps(self.writer()))

    def task(
        self, planned: StreamWriter, batch: int, values: Sequence[str], partition: int = 0, attempt: int = 0
    ) -> Written:
        here = Attempt(self.query_id, self.run_id, batch, partition, attempt)
        original = tasks.this_attempt
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("barnabas.spark.sink.writer.this_attempt", lambda: here)
            written = planned.write(rows(values))
        assert tasks.this_attempt is original
        return written

    def run(self, batch: int, values: Sequence[str], partitions: int = 2) -> None:
        """One micro-batch without faults."""
        planned = self.plan()
        messages = [self.task(planned, batch, values[p::partitions], p) for p in range(partitions)]
        self.writer().commit(messages, batch)

    def visible(self) -> list[str]:
        return sorted(value.decode() for value in committed(self.broker.bootstrap_servers, self.topic, PARTITIONS))

    def open_ids(self) -> list[str]:
        with Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            listed = admin.list_transactions(states=["Ongoing"])
        return [t.transactional_id for t in listed if self.query_id in t.transactional_id]


def rows(values: Sequence[str]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"key": list(values), "value": list(values)})


@pytest.fixture
def query(broker: Broker, tmp_path: Path) -> Query:
    return Query(broker, tmp_path)


A, B, C = [f"a{i}" for i in range(9)], [f"b{i}" for i in range(9)], [f"c{i}" for i in range(9)]


def test_micro_batches_are_committed_one_after_the_other(query: Query) -> None:
    for batch, values in enumerate((A, B, C)):
        query.run(batch, values)
        assert query.visible() == sorted([*A, *B, *C][: 9 * (batch + 1)])
    assert query.open_ids() == []


def test_rows_are_not_visible_before_the_commit(query: Query) -> None:
    planned = query.plan()
    written = query.task(planned, 0, A)
    assert written.transaction is not None
    assert written.two_phase == query.broker.two_phase
    assert query.visible() == []
    assert query.open_ids() == [written.transaction.transactional_id]
    query.writer().commit([written], 0)
    assert query.visible() == A


def test_an_empty_task_has_no_transaction(query: Query) -> None:
    written = query.task(query.plan(), 0, [])
    assert written.transaction is None
    query.writer().commit([written], 0)
    assert query.open_ids() == []


def test_a_replayed_micro_batch_is_not_written_again(query: Query) -> None:
    query.run(0, A)
    query.restart()
    query.run(0, A)  # the driver was killed between the commit and the checkpoint's commit log
    query.run(1, B)
    assert query.visible() == [*A, *B]
    assert query.open_ids() == []


def test_a_deleted_checkpoint_is_a_new_query(query: Query) -> None:
    query.run(0, A)
    query.restart(anew=True)
    query.run(0, B)
    assert query.visible() == [*A, *B]


def test_an_older_checkpoint_is_refused(query: Query) -> None:
    query.run(0, A)
    query.run(1, B)
    query.restart()
    with pytest.raises(DeliveryError, match="ledger has micro-batch 1"):
        query.run(0, A)
    assert query.visible() == [*A, *B]
    assert query.open_ids() == []


def test_attempts_that_spark_does_not_name_are_aborted_by_the_commit(query: Query) -> None:
    planned = query.plan()
    for attempt in (0, 1):
        query.task(planned, 0, A, 0, attempt)
    query.writer().commit([query.task(planned, 0, A, 0, 2)], 0)
    assert query.visible() == A  # open transactions would hold back the last stable offset
    assert query.open_ids() == []
    late = query.task(planned, 0, A, 0, 3)  # an attempt that begins after the commit
    assert query.open_ids() == [late.transaction.transactional_id]
    query.run(1, B)
    assert query.visible() == [*A, *B]
    assert query.open_ids() == []


def batch_write(query: Query, **more: str) -> BatchWriter:
    options = parse_sink_options(query.options() | {"delivery": "exactly-once"} | more, QueryMode.BATCH)
    writer = BatchWriter(options, row_layout({"key": "string", "value": "string"}, options), f"job-{uuid4().hex}")
    writer.prepare()
    return writer


def attempt_of(job: BatchWriter | StreamWriter, values: Sequence[str], attempt: int) -> Written:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barnabas.spark.sink.writer.this_attempt", lambda: Attempt("", "", 0, 0, attempt))
        return job.write(rows(values))


def test_the_rows_of_a_batch_write_are_visible_when_its_commit_returns(query: Query) -> None:
    """Twenty times with a lost attempt, whose transaction begins before the rows of the attempt that counts."""
    reader = connection.connect({"bootstrap.servers": query.broker.bootstrap_servers})
    partitions = reader.partitions(SourceSubscription(topics=(query.topic,)))
    for _ in range(20):
        job = batch_write(query)
        attempt_of(job, B, 0)
        messages = [attempt_of(job, A, 1)]
        job.commit(messages)
        latest = reader.log_view(partitions).latest  # what a reader with read_committed reads to
        assert all(latest[partition] > newest for partition, newest in messages[0].newest.items())
    assert query.visible() == sorted(A * 20)
    with Admin(bootstrap_servers=query.broker.bootstrap_servers) as admin:
        assert [t for t in admin.list_transactions(states=["Ongoing"]) if "job-" in t.transactional_id] == []


def test_a_batch_write_that_fails_aborts_what_its_lost_attempts_left_open(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.spark.delivery.client.TASKS_END_S", 0.1)
    failed, running = batch_write(query), batch_write(query)
    messages = [attempt_of(failed, A, attempt) for attempt in (0, 1)]
    other = attempt_of(running, B, 0)
    failed.abort([messages[1], None])
    running.commit([other])
    assert query.visible() == B


def test_a_commit_does_not_wait_for_ever_for_the_transaction_of_another_program(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = attempt_of(batch_write(query, transactionalIdPrefix="another-program"), B, 0).transaction
    assert foreign is not None
    job = batch_write(query, **{"delivery.visible.timeout.ms": "300"})
    job.commit([attempt_of(job, A, 0)])
    assert query.visible() == []
    (said,) = [record.getMessage() for record in caplog.records if "do not see all" in record.getMessage()]
    assert said.startswith("the batch write is committed, but after 0.")
    assert f"by the transaction of producer id {foreign.producer_id} (transactional id another-program.job-" in said
    assert f"held back: {query.topic}-" in said
    assert "open for 0 s" in said or "open for 1 s" in said
    shared(DeliveryClient, job._options.client).abort(
        SinkName("another-program", "x"), "__barnabas_delivery", [foreign]
    )
    assert query.visible() == A


@pytest.mark.parametrize("stream", [False, True])
def test_a_write_without_transactions_waits_for_those_of_other_programs(
    stream: bool, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = attempt_of(batch_write(query, transactionalIdPrefix="another-program"), B, 0).transaction
    assert foreign is not None
    client = shared(DeliveryClient, query.parsed.client)

    def write(**more: str) -> list[str]:
        """Write with at-least-once delivery; returns the warnings."""
        caplog.clear()
        mode = QueryMode.STREAM if stream else QueryMode.BATCH
        options = parse_sink_options(query.options() | {"delivery": "at-least-once"} | more, mode)
        layout = row_layout({"key": "string", "value": "string"}, options)
        writer = StreamWriter(options, layout) if stream else BatchWriter(options, layout, f"job-{uuid4().hex}")
        writer.commit([attempt_of(writer, A, 0)], *([7] if stream else []))
        return [record.getMessage() for record in caplog.records if "do not see all" in record.getMessage()]

    (said,) = write(**{"delivery.visible.timeout.ms": "100"})
    assert said.startswith("micro-batch 7 is complete, but" if stream else "the batch write is complete, but after 0.")
    assert f"by the transaction of producer id {foreign.producer_id} (transactional id another-program.job-" in said
    assert write(**{"delivery.visible.timeout.ms": "0"}) == []
    if stream:
        assert write() == [], "a micro-batch waits only if the option is given"
    assert query.visible() == []
    client.abort(SinkName("another-program", "x"), "__barnabas_delivery", [foreign])
    assert write(**{"delivery.visible.timeout.ms": "30000"}) == []
    assert query.visible() == sorted(A * (4 if stream else 3))


def test_a_failed_attempt_aborts_its_transaction_itself(query: Query) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield from rows(A)
        raise RuntimeError("the next rows cannot be computed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "CHUNK_BYTES", 1)
        patch.setattr("barnabas.spark.sink.writer.this_attempt", lambda: Attempt(query.query_id, "run", 0, 0, 0))
        with pytest.raises(RuntimeError):
            query.plan().write(breaking())
    assert query.open_ids() == []


@pytest.mark.parametrize("committed_before", [0, 1, 2])
def test_a_decision_is_carried_out_by_the_next_driver_before_its_tasks(query: Query, committed_before: int) -> None:
    """The driver dies between the decision and the EndTxn of each transaction."""
    planned = query.plan()
    messages = [query.task(planned, 0, A[p::2], p) for p in range(2)]
    ended: list[HandedOverTransaction] = []

    async def end(self: object, transaction: HandedOverTransaction) -> None:
        if len(ended) == committed_before:
            raise ConnectionError("killed")
        ended.append(transaction)
        return await original(self, transaction)

    from barnabas.spark.delivery.kafka_transactions import KafkaTransactions

    original = KafkaTransactions.commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaTransactions, "commit", end)
        if committed_before < 2:
            with pytest.raises(ConnectionError):
                query.writer().commit(messages, 0)
        else:
            query.writer().commit(messages, 0)
    query.writer().abort(messages, 0)  # as Spark does; what was decided stays
    query.restart()
    planned = query.plan()
    assert query.visible() == A
    replay = [query.task(planned, 0, A, 0)]
    query.writer().commit(replay, 0)
    query.run(1, B)
    assert query.visible() == [*A, *B]
    assert query.open_ids() == []


def test_abort_before_the_decision_aborts_the_transactions(query: Query) -> None:
    planned = query.plan()
    messages = [query.task(planned, 0, A[:5], 0), None]
    query.writer().abort(messages, 0)
    assert query.open_ids() == []
    query.run(0, A)
    assert query.visible() == A


def test_a_driver_that_was_taken_for_dead_decides_nothing(query: Query) -> None:
    zombie = query.plan()
    late = [query.task(zombie, 0, A, 0)]
    query.restart()
    planned = query.plan()  # aborts the zombie's transaction, and begins a new generation
    with pytest.raises(DeliveryError, match="is not committed"):
        query.writer().commit(late, 0)
    query.writer().commit([query.task(planned, 0, A, 0)], 0)
    assert query.visible() == A


def test_a_transaction_that_was_fenced_before_the_decision_fails_the_micro_batch(query: Query) -> None:
    planned = query.plan()
    messages = [query.task(planned, 0, A[p::2], p) for p in range(2)]
    with Admin(bootstrap_servers=query.broker.bootstrap_servers) as admin:
        admin.fence_producer(messages[1].transaction.transactional_id)
    with pytest.raises(DeliveryError, match="1 of its 2 transactions ended before the micro-batch did"):
        query.writer().commit(messages, 0)
    query.writer().abort(messages, 0)
    query.run(0, A)
    assert query.visible() == A


@pytest.mark.parametrize("gone", [1, 2])
def test_decided_transactions_that_the_broker_aborted(query: Query, gone: int) -> None:
    """All of them: the decision is withdrawn. Some of them: rows are lost, which is an error until it is accepted."""
    from barnabas.spark.delivery.kafka_transactions import KafkaTransactions

    planned = query.plan()
    messages = [query.task(planned, 0, A[p::2], p) for p in range(2)]

    async def die(self: object, transaction: HandedOverTransaction) -> None:
        raise ConnectionError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaTransactions, "commit", die)
        with pytest.raises(ConnectionError):
            query.writer().commit(messages, 0)
    with Admin(bootstrap_servers=query.broker.bootstrap_servers) as admin:
        for message in messages[:gone]:
            admin.fence_producer(message.transaction.transactional_id)  # as transaction.timeout.ms does
    query.restart()
    if gone == 2:
        query.run(0, A)
        assert query.visible() == A
        return
    for _ in range(2):
        with pytest.raises(RecoveryError, match=r"^rows of micro-batch 0 of .* are lost.* failOnDataLoss=false"):
            query.plan()
    query.more["failOnDataLoss"] = "false"
    query.run(0, A)
    query.run(1, B)
    assert query.visible() == [*A[1::2], *B]


def test_a_batch_write_is_committed_as_a_whole(
    query: Query, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_writer, "_warned", False)
    monkeypatch.setattr("barnabas.spark.delivery.client.TASKS_END_S", 0.1)
    failed, done = batch_write(query), batch_write(query)
    messages = [failed.write(rows(A))]
    assert query.visible() == []
    failed.abort([*messages, None])
    done.commit([done.write(rows(B))])
    assert query.visible() == B
    assert not messages[0].two_phase  # the transactions of a job that Spark does not start again must time out
    assert "two-phase" not in caplog.text  # that is by choice, whatever the brokers offer


def test_a_batch_write_that_died_in_its_commit_is_finished_by_the_next_one(query: Query) -> None:
    from barnabas.spark.delivery.kafka_transactions import KafkaTransactions

    options = parse_sink_options(query.options() | {"delivery": "exactly-once"}, QueryMode.BATCH)
    layout = row_layout({"key": "string", "value": "string"}, options)
    died = BatchWriter(options, layout, f"job-{uuid4().hex}")
    messages = [died.write(rows(A))]

    async def die(self: object, transaction: HandedOverTransaction) -> None:
        raise ConnectionError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaTransactions, "commit", die)
        with pytest.raises(ConnectionError):
            died.commit(messages)
    assert query.visible() == []
    BatchWriter(options, layout, f"job-{uuid4().hex}").prepare()
    assert query.visible() == A


def test_the_writers_of_batch_writes_are_not_kept(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write has a ledger id of its own. Before, its producer stayed open for the life of the process."""
    options = parse_sink_options(query.options() | {"delivery": "exactly-once"}, QueryMode.BATCH)
    layout = row_layout({"key": "string", "value": "string"}, options)
    ledger = shared(DeliveryClient, options.client)._ledger("__barnabas_delivery")
    for _ in range(3):
        job = BatchWriter(options, layout, f"job-{uuid4().hex}")
        job.commit([job.write(rows(A))])
    assert ledger._writers == {}
    monkeypatch.setattr(kafka_ledger, "WRITERS_MAX", 2)
    for _ in range(4):  # abort acquires the ledger, too
        job = BatchWriter(options, layout, f"job-{uuid4().hex}")
        job.abort([job.write(rows(B))])
    assert len(ledger._writers) == 2
    assert query.visible() == sorted(A * 3)


def test_a_batch_write_whose_record_cannot_be_removed_has_not_failed(
    query: Query, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error would make the user write the rows again."""
    from barnabas.spark.delivery.kafka_ledger import KafkaLedger

    options = parse_sink_options(query.options() | {"delivery": "exactly-once"}, QueryMode.BATCH)
    job = BatchWriter(options, row_layout({"key": "string", "value": "string"}, options), f"job-{uuid4().hex}")
    original = KafkaLedger.write

    async def write(self: KafkaLedger, name: SinkName, state: DeliveryState | None, *companions: Any) -> None:
        if state is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        await original(self, name, state, *companions)

    monkeypatch.setattr(KafkaLedger, "write", write)
    job.commit([job.write(rows(A))])
    assert query.visible() == A
    assert "stays in the ledger" in caplog.text


def test_two_phase_commit_can_be_required(query: Query) -> None:
    query.more["kafka.transaction.two.phase.commit.enable"] = "true"
    planned = query.plan()
    if query.broker.two_phase:
        assert query.task(planned, 0, A).two_phase
    else:
        with pytest.raises(SinkError, match=r"Set transaction\.two\.phase\.commit\.enable=true"):
            query.task(planned, 0, A)


def test_brokers_without_two_phase_commit_are_a_warning(
    query: Query, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in a process, and only where the user has not chosen time-outs."""

    def warnings() -> list[str]:
        found = [record.getMessage() for record in caplog.records if "two-phase commit" in record.getMessage()]
        caplog.clear()
        return found

    monkeypatch.setattr(sink_writer, "_warned", False)
    options = parse_sink_options(query.options() | {"delivery": "exactly-once"}, QueryMode.BATCH)
    job = BatchWriter(options, row_layout({"key": "string", "value": "string"}, options), f"job-{uuid4().hex}")
    job.commit([job.write(rows(A))])  # a batch write never has another kind of transactions
    query.more[f"kafka.{TWO_PHASE_SETTING}"] = "false"
    query.run(0, A)
    assert warnings() == []
    del query.more[f"kafka.{TWO_PHASE_SETTING}"]
    query.restart()
    query.run(1, B)
    query.run(2, C)
    found = warnings()
    assert len(found) == (0 if query.broker.two_phase else 1)
    page = " ".join((DOCS / "SPARK.md").read_text().split())
    assert all(text in page for text in found)


def test_an_error_of_recovery_is_one_line_with_a_remedy(
    query: Query, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REACH_TIMEOUT_MS", 200)
    query.more["kafka.bootstrap.servers"] = "127.0.0.1:1"
    with pytest.raises(RecoveryError, match=r"no micro-batch begins, .*: Cannot reach the cluster.*127\.0\.0\.1:1"):
        query.plan()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("barnabas: RecoveryError: no micro-batch begins")
    assert line.endswith("start the query again with its checkpoint")


def test_the_ledger_is_a_compacted_topic(query: Query) -> None:
    query.run(0, A)
    with Admin(bootstrap_servers=query.broker.bootstrap_servers) as admin:
        resource = ConfigResource.topic("__barnabas_delivery")
        configs = admin.describe_configs([resource])[resource]
    assert configs["cleanup.policy"].value == "compact"


def test_a_tombstone_and_a_timestamp_are_written(query: Query) -> None:
    options = parse_sink_options(query.options() | {"delivery": "at-least-once"}, QueryMode.BATCH)
    kinds = {"key": "string", "value": "string", "timestamp": "bigint"}
    table = pa.RecordBatch.from_pydict(
        {"key": ["k", "l"], "value": pa.array(["v", None], pa.string()), "timestamp": [1_700_000_000_000, None]}
    )
    BatchWriter(options, row_layout(kinds, options), "job-x").write(iter([table]))
    stamps = key_value_timestamp(query)
    assert stamps[b"k"] == (b"v", 1_700_000_000_000)
    value, now = stamps[b"l"]
    assert value is None
    assert now > 1_700_000_000_000


def key_value_timestamp(query: Query) -> dict[bytes, tuple[bytes | None, int]]:
    consumer = Consumer({"bootstrap.servers": query.broker.bootstrap_servers, "group.id": "x"})
    consumer.assign([TopicPartition(query.topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: dict[bytes, tuple[bytes | None, int]] = {}
    while len(found) < 2:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found[message.key()] = (message.value(), message.timestamp()[1])
    consumer.close()
    return found
