"""Payments, each with the newest rate of its currency: a KTable that is kept in Spark's state store.

Kafka Streams: payments.join(rates: KTable, (payment, rate) -> ...).to("payments-converted")

Both topics are one stream. For each currency the state has the newest rate. Every record is handled once, in the order
of its timestamp within a micro-batch, so the table is part of the query's checkpoint and nothing is read twice. A
record without a value deletes the rate, as in a compacted topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.streams.topics import read_stream, write_stream
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

INPUTS, OUTPUT = ("payments", "rates"), "payments-converted"


class JoinRate(StatefulProcessor):
    """State: the rate of one currency."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.rate = handle.getValueState("rate", "rate double")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in sorted(rows, key=lambda row: (row.timestamp, not row.is_rate, row.offset)):
            if not row.is_rate:
                if self.rate.exists():
                    euros = float(row.value) * self.rate.get()[0]
                    yield Row(key=key[0], value=f"{euros:.2f}")
            elif row.value is None:
                self.rate.clear()
            else:
                self.rate.update((float(row.value),))

    def close(self) -> None:
        pass


def convert(payments: DataFrame, rates: DataFrame) -> DataFrame:
    both = payments.withColumn("is_rate", sf.lit(False)).union(rates.withColumn("is_rate", sf.lit(True)))
    return both.groupBy("key").transformWithState(
        statefulProcessor=JoinRate(), outputStructType="key string, value string", outputMode="Append", timeMode="None"
    )


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    payments, rates = (read_stream(spark, servers, topic) for topic in INPUTS)
    return write_stream(convert(payments, rates), servers, OUTPUT, checkpoint)
