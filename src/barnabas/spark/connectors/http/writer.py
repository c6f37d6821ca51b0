"""Shell: the writers that Spark calls. A task sends the requests of its rows one after another, so that the records of
a partition arrive in their order. Delivery is at least once: Spark may give a task its rows again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.spark.connectors.http.connection import HttpConnection
from barnabas.spark.connectors.http.errors import HttpUnavailableError
from barnabas.spark.connectors.http.options import HttpOptions, parse_http_options
from barnabas.spark.connectors.http.requests import BadText, Request, requests_of
from barnabas.spark.connectors.http.retrying import Accepted, Again, judge_answer
from barnabas.spark.connectors.http.texts import record_texts, unsent_members
from barnabas.spark.connectors.sinking.failures import FailedRecords, prepare_topic, read_records
from barnabas.spark.connectors.sinking.options import InputKind
from barnabas.spark.connectors.sinking.records import ROW, RecordReader
from barnabas.spark.delivery.checkpoints import history_of
from barnabas.spark.delivery.identity import LedgerEntry, entry_of
from barnabas.spark.errors import SinkError
from barnabas.spark.heap import freeze_heap
from barnabas.spark.reporting import readable_errors
from barnabas.spark.sink.tasks import Attempt, this_attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("barnabas.spark")


@dataclass(frozen=True)
class Sent(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not followed by mypy
    """What a task sent."""

    requests: int
    records: int
    failed: int


@readable_errors
def http_batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> HttpBatchWriter:
    """The writer of a batch query. Raises OptionError and SinkError."""
    if overwrite:
        raise SinkError("a web service cannot be overwritten; write with mode('append')")
    parsed = parse_http_options(options)
    prepare_topic(parsed.rows)
    return HttpBatchWriter(parsed)


@readable_errors
def http_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> HttpStreamWriter:
    """The writer of a streaming query. Raises OptionError."""
    parsed = parse_http_options(options)
    prepare_topic(parsed.rows)
    return HttpStreamWriter(parsed)


class HttpBatchWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.write`."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        freeze_heap()
        return send_rows(iterator, self._options, this_attempt())

    def commit(self, messages: list[Sent | None]) -> None:
        """The requests are accepted when the tasks end."""

    def abort(self, messages: list[Sent | None]) -> None:
        """Accepted requests cannot be taken back."""


class HttpStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark is not followed by mypy
    """The writer of `df.writeStream`."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._planned: LedgerEntry | None = None

    def __getstate__(self) -> dict[str, object]:
        """Spark pickles the writer for the tasks after it has planned the micro-batch: now the checkpoint has it."""
        history = history_of(self._options.rows.checkpoint)
        newest = None if history is None else history.newest()
        if newest is not None:
            self._planned = entry_of(newest, history)
        return self.__dict__.copy()

    @readable_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        freeze_heap()
        return send_rows(iterator, self._options, this_attempt(), self._planned)

    def commit(self, messages: list[Sent | None], batchId: int) -> None:
        """The requests are accepted when the tasks end."""

    def abort(self, messages: list[Sent | None], batchId: int) -> None:
        """Accepted requests cannot be taken back. Spark sends the micro-batch again after a restart."""


def row_source(attempt: Attempt, planned: LedgerEntry | None) -> str:
    """What the keys of requests begin with, for rows that have no topic, partition and offset. It names the micro-batch
    by its identity, too: in a checkpoint that was restored, the same number stands for other rows, and a web service
    that knows the keys would pass these over."""
    source = f"{attempt.query_id or attempt.run_id}-{attempt.batch_id}"
    if planned is not None and planned.digest is not None and planned.batch_id == attempt.batch_id:
        source += f"-{planned.digest[:12]}"
    return f"{source}-{attempt.partition}"


def send_rows(
    iterator: Iterator[pa.RecordBatch], options: HttpOptions, attempt: Attempt, planned: LedgerEntry | None = None
) -> Sent:
    """Send the rows of a task. `planned` is the micro-batch that the checkpoint has planned last. Raises SinkError if
    the web service does not accept a request."""
    sender = RequestSender(options)
    failed = FailedRecords(options.rows, attempt)
    reader = RecordReader(options.rows) if options.rows.input is InputKind.RECORDS else None
    source = row_source(attempt, planned)
    requests = rows = 0
    try:
        for batch in iterator:
            decoded = [batch] if reader is None else read_records(reader, batch, failed)
            for one in decoded:
                unsent = unsent_members(one, options.rows.unavailable, are_records=reader is not None)
                texts = record_texts(one, source, rows, None if reader is None else read_topics(batch, one), unsent)
                rows += one.num_rows
                for request in requests_of(texts, options):
                    if isinstance(request, BadText):
                        _add_failed(failed, batch, one, range(request.index, request.index + 1), request.reason)
                        continue
                    requests += 1
                    reason = sender.send(request)
                    if reason is not None:
                        _add_failed(failed, batch, one, range(request.first, request.end), reason)
        failed.flush()
    finally:
        sender.close()
    return Sent(requests, rows, failed.count)


def read_topics(batch: Any, decoded: Any) -> Any:
    """The topic from which each decoded record was read; a transform may have given it another one."""
    return batch.column("topic").take(decoded.column(ROW))


def _add_failed(failed: FailedRecords, batch: Any, decoded: Any, rows: range, reason: str) -> None:
    """Report rows of decoded records, as the records that were read."""
    if ROW not in decoded.schema.names:
        failed.add(batch, rows, reason)
        return
    for row in decoded.column(ROW).slice(rows.start, len(rows)).to_pylist():
        failed.add(batch, range(row, row + 1), reason)


class RequestSender:
    """Sends requests over one connection, and again as long as that may help."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._connection = HttpConnection(options.url, options.timeout_s)
        self._random = random.Random()

    def send(self, request: Request) -> str | None:
        """Send a request until the web service accepts it. Returns why it refuses the records, or None.

        Raises HttpUnavailableError if the request could be accepted later: the records are not at fault.
        """
        options = self._options
        headers = {**dict(options.headers), options.key_header: request.key}
        sent = 0
        while True:
            sent += 1
            answer = self._connection.send(options.method, request.body, headers)
            now_ms = time.time_ns() // 1_000_000
            verdict = judge_answer(answer, sent, options, now_ms, self._random.random())
            if isinstance(verdict, Accepted):
                return None
            if not isinstance(verdict, Again):
                if not verdict.lasting:
                    raise HttpUnavailableError(
                        f"{verdict.reason}. The query can be started again when the web service works; a larger"
                        " max.retries bridges longer outages"
                    )
                return verdict.reason
            log.info("%s: request %s is sent again in %d ms (%s)", options.url, request.key, verdict.delay_ms, answer)
            time.sleep(verdict.delay_ms / 1000)

    def close(self) -> None:
        self._connection.close()
