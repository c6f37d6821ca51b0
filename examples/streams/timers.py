"""An alarm for every device that has reported nothing for five minutes: state and timers (transformWithState).

Kafka Streams: a Processor with a KeyValueStore and context.schedule(..., PunctuationType.STREAM_TIME, ...)

Each device has a timer of event time. A report deletes the old timer and sets a new one. The timer expires when the
watermark, one minute behind the newest report of any device, has passed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.streams.topics import fields, read_stream, write_stream
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StatefulProcessor, StatefulProcessorHandle

INPUTS, OUTPUT = ("reports",), "alarms"

SILENCE_MS = 5 * 60 * 1000


class AlarmAfterSilence(StatefulProcessor):
    """State: the time of the device's newest report, in ms."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.newest = handle.getValueState("newest", "at_ms bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        before = self.newest.get()[0] if self.newest.exists() else 0
        newest = max([before, *(int(row.at.timestamp() * 1000) for row in rows)])
        if newest > before:
            if before:
                self.handle.deleteTimer(before + SILENCE_MS)
            self.handle.registerTimer(newest + SILENCE_MS)
            self.newest.update((newest,))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        newest_ms = self.newest.get()[0]
        self.newest.clear()
        yield Row(key=key[0], value=f"silent since {newest_ms}")

    def close(self) -> None:
        pass


def find_silent(reports: DataFrame) -> DataFrame:
    by_time = reports.select("key", fields("at timestamp").alias("report")).select("key", "report.at")
    return (
        by_time.withWatermark("at", "1 minute")
        .groupBy("key")
        .transformWithState(
            statefulProcessor=AlarmAfterSilence(),
            outputStructType="key string, value string",
            outputMode="Append",
            timeMode="EventTime",
        )
    )


def build(spark: SparkSession, servers: str, checkpoint: Path) -> DataStreamWriter:
    return write_stream(find_silent(read_stream(spark, servers, *INPUTS)), servers, OUTPUT, checkpoint)
