"""Shell: a data source for measurements: that of Barnabas, with notes of when Spark calls it and how long calls take.

Importing this module replaces calls in the process. Spark calls a source and a sink from several processes.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from barnabas.client.producer.producer import AsyncProducer
from barnabas.spark.delivery.client import DeliveryClient
from barnabas.spark.delivery.kafka_ledger import KafkaLedger
from barnabas.spark.delivery.kafka_transactions import KafkaTransactions
from barnabas.spark.sink import tasks, writer
from barnabas.spark.source import reader
from bench.pipelines.notes import note
from pyspark_barnabas import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamReader
    from pyspark.sql.types import StructType


def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose calls are noted."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wait(*args: Any, **kwargs: Any) -> Any:
            began = time.time_ns()
            try:
                return await function(*args, **kwargs)
            finally:
                note(part, began, time.time_ns())

        return wait

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = time.time_ns()
        try:
            return function(*args, **kwargs)
        finally:
            note(part, began, time.time_ns())

    return call


def timed_iteration(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """The generator function of a read task. Noted are the whole task, and the part of it that Spark waits for."""

    @functools.wraps(function)
    def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
        began, own = time.time_ns(), 0
        items = function(*args, **kwargs)
        while True:
            asked = time.time_ns()
            item = next(items, None)
            own += time.time_ns() - asked
            if item is None:
                break
            yield item
        ended = time.time_ns()
        note("task: read", began, ended)
        note("task: read, fetch and decode", ended - own, ended)

    return iterate


def timed_write(function: Callable[..., Any]) -> Callable[..., Any]:
    """The write of a task. Noted are the whole call, and its wait for rows."""

    @functools.wraps(function)
    def write(self: Any, iterator: Iterable[Any]) -> Any:
        began, waited = time.time_ns(), 0

        def rows() -> Iterator[Any]:
            nonlocal waited
            items = iter(iterator)
            while True:
                asked = time.time_ns()
                item = next(items, None)
                waited += time.time_ns() - asked
                if item is None:
                    return
                yield item

        try:
            return function(self, rows())
        finally:
            ended = time.time_ns()
            note("task: write", began, ended)
            note("task: write, without the wait for rows", began + waited, ended)

    return write


def install() -> None:
    """Replace the calls by noted ones, in this process."""
    stream = reader.StreamReader
    for name in ("initialOffset", "latestOffset", "reportLatestOffset", "partitions", "commit"):
        setattr(stream, name, timed(f"source: {name}", getattr(stream, name)))
    reader._read_raw = timed_iteration(reader._read_raw)
    writer.stream_writer = timed("sink: create", writer.stream_writer)
    writer.recover = timed("sink: recover", writer.recover)
    writer.StreamWriter.write = timed_write(writer.StreamWriter.write)  # type: ignore[method-assign]
    writer.StreamWriter.commit = timed("sink: commit", writer.StreamWriter.commit)  # type: ignore[method-assign]
    tasks.TransactionalWriter.begin = timed("task: begin", tasks.TransactionalWriter.begin)  # type: ignore[method-assign]
    tasks._send = timed("task: send", tasks._send)
    AsyncProducer.hand_over_transaction = timed("task: hand over", AsyncProducer.hand_over_transaction)  # type: ignore[method-assign]
    DeliveryClient.__init__ = timed("sink: connect", DeliveryClient.__init__)  # type: ignore[method-assign]
    KafkaLedger.read = timed("ledger: read", KafkaLedger.read)  # type: ignore[method-assign]
    KafkaLedger.acquire = timed("ledger: acquire", KafkaLedger.acquire)  # type: ignore[method-assign]
    KafkaLedger.write = timed("ledger: write", KafkaLedger.write)  # type: ignore[method-assign]
    KafkaTransactions.open_ids = timed("transactions: list", KafkaTransactions.open_ids)  # type: ignore[method-assign]
    KafkaTransactions.standing = timed("transactions: describe", KafkaTransactions.standing)  # type: ignore[method-assign]
    KafkaTransactions.commit = timed("transactions: end", KafkaTransactions.commit)  # type: ignore[method-assign]


install()


class TimedReader(reader.StreamReader):
    """A reader that brings this module, and so the noted calls, into the processes of the tasks."""


class TimedWriter(writer.StreamWriter):
    """The same for a writer."""


class TimedSource(DefaultSource):
    """`format("barnabas-timed")`. Importing this module has replaced the calls."""

    @classmethod
    def name(cls) -> str:
        return "barnabas-timed"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        made = super().streamReader(schema)
        made.__class__ = TimedReader
        return made

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        made = super().streamWriter(schema, overwrite)
        made.__class__ = TimedWriter
        return made
