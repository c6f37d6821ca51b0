"""Shell: the writers that Spark calls.

    driver, planning   batch_writer / stream_writer: once per query and once per micro-batch, before the tasks
    workers, forked    write(): one task attempt; the returned message names the attempt and its transaction
    driver             commit(messages) or abort(messages), in another process than planning

With delivery=at-least-once, the records of an attempt are acknowledged when `write` returns. An attempt that Spark
discards is not notified, and Spark writes a micro-batch again if the driver dies before the commit: then records are
written twice. A batch write then waits until consumers see the rows, which transactions of other programs can hold
back. With delivery=exactly-once, an attempt leaves a transaction open, and the driver commits those that the
messages name (see `delivery/decisions.py`).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from barnabas.client.errors import BootstrapError
from barnabas.core.errors import BarnabasError
from barnabas.spark.connection import require_cluster, shared
from barnabas.spark.delivery.checkpoints import has_committed, history_of, query_id_of
from barnabas.spark.delivery.client import DeliveryClient
from barnabas.spark.delivery.driver import MicroBatch
from barnabas.spark.delivery.names import JOB_PREFIX, RUN_CHARACTERS, SinkName
from barnabas.spark.delivery.visibility import newest_batches
from barnabas.spark.delivery.visible_commits import Attempts
from barnabas.spark.errors import DeliveryError, RecoveryError, SinkError
from barnabas.spark.heap import freeze_heap
from barnabas.spark.options import QueryMode
from barnabas.spark.reporting import readable_errors
from barnabas.spark.sink.options import TWO_PHASE_SETTING, ExactlyOnce, SinkOptions, parse_sink_options
from barnabas.spark.sink.rows import RowLayout, row_layout
from barnabas.spark.sink.tasks import Written, this_attempt, write_in_transaction, write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("barnabas.spark")


@readable_errors
def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Create the writer of a batch query. Raises OptionError and SinkError, and BootstrapError if the cluster does not
    answer.
    """
    freeze_heap()
    if overwrite:
        raise SinkError("a topic cannot be overwritten; write with mode('append')")
    parsed = parse_sink_options(options, QueryMode.BATCH)
    layout = _layout(schema, parsed)
    require_cluster(parsed.client)
    if parsed.formats.typed and parsed.topic is not None:
        # A schema that does not fit is an error here, before the tasks start.
        from pyspark.sql.pandas.types import to_arrow_schema

        from barnabas.spark.records.encoding import encode_records

        encode_records(to_arrow_schema(schema, timezone="UTC").empty_table(), parsed.formats, parsed.topic)
    writer = BatchWriter(parsed, layout, JOB_PREFIX + uuid.uuid4().hex)
    writer.prepare()
    return writer


@readable_errors
def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Create the writer of a streaming query. Raises OptionError and SinkError. In complete mode, each result is
    appended as a whole, as in Spark's connector.
    """
    freeze_heap()
    parsed = parse_sink_options(options, QueryMode.STREAM)
    return StreamWriter(parsed, _layout(schema, parsed))


@dataclass(frozen=True)
class Planned:
    """What planning on the driver passes to the tasks of a micro-batch, and they to the commit."""

    generation: int = 0


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.write`. Planning creates it, and Spark passes copies to the tasks and to the commit."""

    def __init__(self, options: SinkOptions, layout: RowLayout, job_id: str) -> None:
        self._options = options
        self._layout = layout
        self._job_id = job_id

    def prepare(self) -> None:
        """Finish what earlier batch writes have decided."""
        if (exactly_once := self._options.exactly_once) is not None:
            _client(self._options).recover_jobs(exactly_once.id_prefix, exactly_once.ledger)

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        freeze_heap()
        if self._options.exactly_once is None:
            return write_rows(iterator, self._options, self._layout)
        # Spark does not start a killed job again, so its transactions must time out, unless the user has set otherwise.
        options = replace(self._options, exactly_once=_with_time_outs(self._options.exactly_once))
        attempt = replace(this_attempt(), query_id=self._job_id, run_id=self._job_id[len(JOB_PREFIX) :], batch_id=0)
        return write_in_transaction(iterator, options, self._layout, attempt)

    @readable_errors
    def commit(self, messages: list[Written | None]) -> None:
        """With exactly-once delivery, commit the transactions of the attempts that count. Then wait until the rows are
        visible."""
        freeze_heap()
        exactly_once = self._options.exactly_once
        if exactly_once is None:
            _wait_until_visible(self._options, "the batch write is complete", messages)
            return
        name = SinkName(exactly_once.id_prefix, self._job_id)
        batch = _micro_batch(0, messages)
        client = _client(self._options)
        if batch.transactions:
            client.commit(name, exactly_once.ledger, batch, accept_loss=exactly_once.accept_loss)
            client.forget(name, exactly_once.ledger)
        _show(client, (name, self._run), "the batch write is committed", messages, exactly_once.visible_timeout_ms)

    def abort(self, messages: list[Written | None]) -> None:
        """With exactly-once delivery, abort the transactions, those of attempts that were lost among them. Otherwise,
        written records cannot be removed."""
        exactly_once = self._options.exactly_once
        if exactly_once is None:
            return
        if not any(message is None for message in messages):
            _abort(self._options, self._job_id, messages)  # the commit has raised: what it has decided stays
            return
        name = SinkName(exactly_once.id_prefix, self._job_id)
        try:
            _client(self._options).abandon(name, self._run)
        except (BarnabasError, TimeoutError) as error:
            log.warning("transactions of %s may be open until their time-out: %r", self._job_id, error)

    @property
    def _run(self) -> str:
        """The run in the transactional ids of this write's tasks."""
        return self._job_id[len(JOB_PREFIX) :][:RUN_CHARACTERS]


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.writeStream`. Spark creates it for planning, for tasks a copy of that one, and another one for
    the commit. Therefore only `write` knows whether it is the copy for tasks, and recovers nothing."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout
        self._planned: Planned | None = None

    def __getstate__(self) -> dict[str, object]:
        """Spark pickles the writer for the tasks, once per micro-batch: this is the moment before the tasks."""
        if self._planned is None:
            self._planned = Planned(recover(self._options))
        return self.__dict__.copy()

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        freeze_heap()
        if self._options.exactly_once is None:
            return write_rows(iterator, self._options, self._layout)
        planned = self._planned or Planned()
        attempt = replace(this_attempt(), generation=planned.generation)
        return write_in_transaction(iterator, self._options, self._layout, attempt)

    # Spark also calls abort with the messages of a commit that raised, so that the ledger decides what abort may do.

    @readable_errors
    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """With exactly-once delivery, commit the transactions of the attempts that count, and wait until their rows are
        visible."""
        exactly_once = self._options.exactly_once
        if exactly_once is None:
            _wait_until_visible(self._options, f"micro-batch {batchId} is complete", messages)
            return
        batch = _micro_batch(batchId, messages)
        if exactly_once.two_phase is None and not all(m.two_phase for m in _written(messages)):
            _warn_of_time_outs()
        if not batch.transactions:
            return
        client, name = _client(self._options), SinkName(exactly_once.id_prefix, _query_id(messages))
        history = history_of(exactly_once.checkpoint)
        batch = replace(batch, history=history)

        def commit() -> None:
            client.commit(name, exactly_once.ledger, batch, accept_loss=exactly_once.accept_loss)

        commit() if history is None else history.explain(commit)
        run = _run_of(messages)
        assert run is not None, "an attempt with a transaction has a message"
        what = f"micro-batch {batchId} of {name.query_id} is committed"
        _show(client, (name, run), what, messages, exactly_once.visible_timeout_ms)

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        """With exactly-once delivery, abort the transactions, unless they are decided. Otherwise, written records
        cannot be removed. Spark writes the micro-batch again."""
        exactly_once = self._options.exactly_once
        if exactly_once is None:
            return
        if any(message is None for message in messages) and _abort_unfinished(self._options, exactly_once, messages):
            return
        if any(message is not None and message.transaction for message in messages):
            _abort(self._options, _query_id(messages), messages)


@readable_errors
def recover(options: SinkOptions) -> int:
    """Recover before the tasks of a micro-batch, and return the generation in which they run. Raises RecoveryError.

    The query id is in the checkpoint. If the driver cannot read it there, nothing is recovered now: the commit of the
    micro-batch then finishes what was decided, and orphans are aborted by their time-out.
    """
    exactly_once = options.exactly_once
    if exactly_once is None:
        return 0
    query_id = query_id_of(exactly_once.checkpoint)
    if query_id is None:
        return 0
    name = SinkName(exactly_once.id_prefix, query_id)
    try:
        return _recover_patiently(options, exactly_once, name)
    except DeliveryError as error:
        raise RecoveryError(str(error)) from error
    except BarnabasError as error:
        raise RecoveryError(
            "no micro-batch begins, because the transactions that an earlier run of the query may have left open cannot"
            f" be read and ended: {error}. Nothing is lost: correct this, and start the query again with its checkpoint"
        ) from error


def _recover_patiently(options: SinkOptions, exactly_once: ExactlyOnce, name: SinkName) -> int:
    """Fail soon if the brokers of a new query do not answer. Those of a query that has written before may only be
    restarting: each micro-batch is planned in a process of its own, which has not met them yet.
    """
    client = _client(options)
    try:
        return client.recover(name, exactly_once.ledger, accept_loss=exactly_once.accept_loss)
    except BootstrapError:
        if not has_committed(exactly_once.checkpoint):
            raise
        return client.recover(name, exactly_once.ledger, accept_loss=exactly_once.accept_loss, patient=True)


def _client(options: SinkOptions) -> DeliveryClient:
    return shared(DeliveryClient, options.client)


def _abort(options: SinkOptions, query_id: str, messages: Sequence[Written | None]) -> None:
    transactions = [m.transaction for m in messages if m is not None and m.transaction is not None]
    if options.exactly_once is not None and transactions:
        name = SinkName(options.exactly_once.id_prefix, query_id)
        _client(options).abort(name, options.exactly_once.ledger, transactions)


def _abort_unfinished(options: SinkOptions, exactly_once: ExactlyOnce, messages: Sequence[Written | None]) -> bool:
    """Abort the transactions of a micro-batch of which some task attempts have not finished, because the query may
    never be started again. If brokers do not answer, the next start of the query aborts them, or their time-out.

    Returns False, and does nothing, if the checkpoint cannot be read. Planning then knows no generation of the ledger,
    either, and a new one would make every later micro-batch fail.
    """
    query_id = query_id_of(exactly_once.checkpoint)
    if query_id is None:
        return False
    name = SinkName(exactly_once.id_prefix, query_id)
    try:
        _client(options).abort_unfinished(name, exactly_once.ledger, _run_of(messages))
    except (BarnabasError, TimeoutError) as error:
        log.warning("transactions of %s may be open until the query is started again: %r", query_id, error)
    return True


def _wait_until_visible(options: SinkOptions, what: str, messages: Sequence[Written | None]) -> None:
    """Wait, with at-least-once delivery, until consumers with read_committed see the rows. The rows are written, so
    that an error is only a warning."""
    if options.visible_timeout_ms <= 0 or not any(message is not None and message.newest for message in messages):
        return
    try:
        _show(_client(options), None, what, messages, options.visible_timeout_ms)
    except (BarnabasError, TimeoutError) as error:
        log.warning("%s; whether its rows are visible is not known: %r", what, error)


def _show(
    client: DeliveryClient,
    attempts: Attempts | None,
    what: str,
    messages: Sequence[Written | None],
    timeout_ms: int,
) -> None:
    """Abort what lost attempts have left open, and wait until the rows are visible."""
    newest = newest_batches(message.newest for message in messages if message is not None)
    client.show(attempts, what, newest, timeout_ms)


def _micro_batch(batch_id: int, messages: Sequence[Written | None]) -> MicroBatch:
    written = _written(messages)
    generations = {message.attempt.generation for message in written}
    assert len(generations) <= 1, "all tasks of a micro-batch are planned together"
    transactions = tuple(message.transaction for message in written if message.transaction is not None)
    return MicroBatch(batch_id, generations.pop() if generations else 0, transactions)


def _written(messages: Sequence[Written | None]) -> list[Written]:
    """The attempts that have a transaction."""
    return [message for message in messages if message is not None and message.transaction is not None]


def _run_of(messages: Sequence[Written | None]) -> str | None:
    """The run in the transactional ids of these attempts; None if none of them has finished."""
    return next((message.attempt.run_id[:RUN_CHARACTERS] for message in messages if message is not None), None)


def _query_id(messages: Sequence[Written | None]) -> str:
    return next(message.attempt.query_id for message in messages if message is not None)


_warned = False


def _warn_of_time_outs() -> None:
    """Log, once in a process, that the brokers do not offer two-phase commit. docs/SPARK.md quotes the warning."""
    global _warned
    if not _warned:
        log.warning(
            "the brokers do not offer two-phase commit (KIP-939), so that they abort a transaction after"
            " transaction.timeout.ms, also if it was decided to commit it and the driver then died. Set"
            " %s=true on Barnabas brokers; or restart a failed driver within that time, and set kafka.%s=false on the"
            " sink, which accepts this without a warning",
            TWO_PHASE_SETTING,
            TWO_PHASE_SETTING,
        )
        _warned = True


def _with_time_outs(options: ExactlyOnce) -> ExactlyOnce:
    """The options of a batch write: two-phase commit only if the user has set it."""
    return replace(options, two_phase=bool(options.two_phase))


def _layout(schema: StructType, options: SinkOptions) -> RowLayout:
    return row_layout({field.name: field.dataType.simpleString() for field in schema.fields}, options)
