"""Shell: the two systems under test: our formats in a Spark session, and Debezium's connectors in Kafka Connect.

A source writes the changes of one table to one topic, a sink writes a topic to one table. A source that is stopped and
started again goes on where it was. Both sides write JSON without schemas; the Spark session and the Java machines of
Kafka Connect run before anything is measured.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from bench.connectors.databases import Database
from bench.connectors.kafka_connect import KafkaConnect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONVERTER: Final = "org.apache.kafka.connect.json.JsonConverter"


class Side(Protocol):
    """One of the two systems, on one database."""

    name: str
    prefix: str
    """The prefix of the topics that the source writes."""

    def start_source(self, table: str) -> None: ...

    def stop_source(self) -> None: ...

    def start_sink(self, topic: str, table: str) -> None: ...

    def stop_sink(self) -> None: ...

    def failure(self) -> str | None:
        """Why the source or sink has ended by itself, if it has."""

    def describe(self) -> str:
        """What the source and the sink are doing, for the message about one that makes no progress."""

    def close(self) -> None: ...


class Barnabas:
    """Our formats in a Spark session, source and sink, both exactly once."""

    name = "Barnabas"
    prefix = "ours"

    def __init__(self, spark: SparkSession, servers: str, database: Database, folder: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._database = database
        self._folder = folder
        self._query: Any = None

    def start_source(self, table: str) -> None:
        source = self._database.our_source(table, self._folder / f"staging-{table}")
        converters = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
        stream = self._spark.readStream.format(source.format).options(**source.options, **converters).load()
        self._query = (
            stream.writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", self._servers)
            .option("includeHeaders", "true")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{table}"))
            .start()
        )

    def stop_source(self) -> None:
        self._query.stop()

    def start_sink(self, topic: str, table: str) -> None:
        sink = self._database.our_sink(table)
        stream = (
            self._spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", self._servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        self._query = (
            stream.writeStream.format(sink.format)
            .options(**sink.options)
            .option("value.converter", _CONVERTER)
            .option("value.converter.schemas.enable", "true")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{table}"))
            .start()
        )

    def stop_sink(self) -> None:
        self._query.stop()

    def failure(self) -> str | None:
        """Why the query has ended, if it has."""
        error = None if self._query is None else self._query.exception()
        return None if error is None else str(error)

    def describe(self) -> str:
        return str(self._query.status)

    def close(self) -> None:
        if self._query is not None:
            self._query.stop()


class Debezium:
    """Debezium's connectors in standalone workers of Kafka Connect, one for the source and one for the sink.

    A worker has the jars of one connector, since their versions differ.
    """

    name = "Debezium"
    prefix = "theirs"

    def __init__(self, servers: str, database: Database, folder: Path) -> None:
        self._servers = servers
        self._database = database
        self._stack = ExitStack()
        source, sink = database.their_source("any", servers), database.their_sink("any")
        try:
            self._source = self._stack.enter_context(KafkaConnect(folder / "source", servers, source.connector))
            self._sink = self._stack.enter_context(KafkaConnect(folder / "sink", servers, sink.connector, schemas=True))
        except BaseException:
            self._stack.close()
            raise

    def start_source(self, table: str) -> None:
        if self._source.exists(table):
            self._source.resume(table)
        else:
            self._source.create(table, self._database.their_source(table, self._servers).config)

    def stop_source(self) -> None:
        self._source.stop_all()

    def start_sink(self, topic: str, table: str) -> None:
        self._sink.create(table, {**self._database.their_sink(table).config, "topics": topic})

    def stop_sink(self) -> None:
        self._sink.stop_all()

    def failure(self) -> str | None:
        """Why a task has failed, if one has."""
        return self._source.failure() or self._sink.failure()

    def describe(self) -> str:
        return "\n".join((self._source.stack_of_tasks(), self._sink.stack_of_tasks()))

    def close(self) -> None:
        self._stack.close()
