"""Shell: the measurements of `bench.connectors`, for either side, on one database and one broker.

    snapshot   from the start of the source until the topic has every row
    changes    from the start of the stopped source until the topic has all that changed meanwhile
    latency    from the commit of a row until a consumer has its event
    sink       from the start of the sink until the table has every record of a topic

A consumer of ours reads the topics of both sides, committed records only.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from barnabas import Consumer, TopicPartition
from barnabas.client.admin import AsyncAdmin
from barnabas.client.producer.producer import AsyncProducer
from bench.connectors.databases import NOTE, TRANSACTION_ROWS, Database
from bench.connectors.sides import Side
from bench.report import Figure, Measured

RATE: Final = 50
"""Rows per second that are inserted while the latency is measured."""
WARM_UP_S: Final = 2
"""Seconds of that time which are not counted."""
PATIENCE_S: Final = 180.0
"""How long a measurement waits without any progress."""

SNAPSHOT: Final = Figure("snapshot", "rows/s", 1)
CHANGES: Final = Figure(f"changes, {TRANSACTION_ROWS} rows a transaction", "rows/s", 1)
P50: Final = Figure(f"latency at {RATE} rows/s, p50", "ms", -1)
P99: Final = Figure(f"latency at {RATE} rows/s, p99", "ms", -1)
SINK: Final = Figure("sink, upserts", "rows/s", 1)


@dataclass(frozen=True)
class Load:
    """How much is measured: rows of a table, records of the sink's topic, and seconds of the latency's measurement."""

    rows: int
    sink_rows: int
    latency_s: int


BULK: Final[Mapping[str, Any]] = {"fetch.min.bytes": 1 << 20, "fetch.max.wait.ms": 50}
"""Settings of a consumer that counts records: it takes little time from the other processes."""


class Follower:
    """Reads the first partition of a topic in a thread of its own, from an offset on (None: the end).

    `count` is the number of records, and `arrived` has the values with their times of arrival, if `keeps` is true.
    """

    def __init__(
        self, servers: str, topic: str, offset: int | None, settings: Mapping[str, Any], *, keeps: bool = False
    ) -> None:
        self.count = 0
        self.arrived: list[tuple[bytes | None, float]] = []
        self._servers, self._partition = servers, TopicPartition(topic, 0)
        self._offset, self._settings, self._keeps = offset, settings, keeps
        self._begun = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Follower:
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with Consumer(bootstrap_servers=self._servers, isolation_level="read_committed", **self._settings) as consumer:
            consumer.assign([self._partition])
            if self._offset is None:
                consumer.seek_to_end(self._partition)
                consumer.position(self._partition)
            else:
                consumer.seek(self._partition, self._offset)
            self._begun.set()
            while not self._stop.is_set():
                batch = consumer.poll_arrow(200, columns=["value"] if self._keeps else ["offset"])
                if batch is None:
                    continue
                now = time.time()
                self.count += batch.num_rows
                if self._keeps:
                    self.arrived += [(value, now) for value in batch["value"].to_pylist()]


class Bench:
    """The measurements on one database and one broker."""

    def __init__(self, database: Database, servers: str) -> None:
        self.database = database
        self._servers = servers

    def capture(self, side: Side, table: str, load: Load) -> Measured:
        """Snapshot, changes and latency, of a new table."""
        database, rows = self.database, load.rows
        self._run(database.create(table), database.fill(table, rows))
        topic = database.topic(side.prefix, table)
        asyncio.run(_create(self._servers, topic))
        with Follower(self._servers, topic, 0, BULK) as follower:
            began = time.monotonic()
            side.start_source(table)
            self._wait(side, lambda: follower.count, rows)
            snapshot = rows / (time.monotonic() - began)
            self._run([f"INSERT INTO {table} (name) VALUES ('the first change')"])
            self._wait(side, lambda: follower.count, rows + 1)
            side.stop_source()
            self._run(database.change(table, rows))
            began = time.monotonic()
            side.start_source(table)
            self._wait(side, lambda: follower.count, 2 * rows + 1)
            changes = rows / (time.monotonic() - began)
        with Follower(self._servers, topic, None, {}, keeps=True) as follower:
            latencies = self._latencies(side, table, follower, load.latency_s)
        side.stop_source()
        self._run(database.forget_readers(), [f"DROP TABLE {table}"])
        p50, p99 = statistics.median(latencies), statistics.quantiles(latencies, n=100)[98]
        return {SNAPSHOT: snapshot, CHANGES: changes, P50: p50 * 1e3, P99: p99 * 1e3}

    def sink(self, side: Side, topic: str, table: str, rows: int) -> Measured:
        """The sink, from a topic with so many records into a new table."""
        self._run(self.database.create(table))
        began = time.monotonic()
        side.start_sink(topic, table)
        self._wait(side, lambda: self._count(table), rows)
        rate = rows / (time.monotonic() - began)
        side.stop_sink()
        self._run([f"DROP TABLE {table}"])
        return {SINK: rate}

    def _latencies(self, side: Side, table: str, follower: Follower, seconds: int) -> list[float]:
        """Seconds from each commit to its event."""
        sent: dict[str, float] = {}
        with closing(self.database.connect()) as connection, closing(connection.cursor()) as cursor:
            began = time.monotonic()
            for index in range(RATE * seconds):
                time.sleep(max(0.0, began + index / RATE - time.monotonic()))
                cursor.execute(f"INSERT INTO {table} (name) VALUES (%s)", (f"timed {index}",))
                sent[f"timed {index}"] = time.time()
        self._wait(side, lambda: follower.count, RATE * seconds)
        events = [(json.loads(value or b"{}").get("after"), at) for value, at in follower.arrived]
        found = [at - sent[row["name"]] for row, at in events if row is not None and row["name"] in sent]
        return found[RATE * WARM_UP_S :]

    def _run(self, *statements: list[str]) -> None:
        with closing(self.database.connect()) as connection, closing(connection.cursor()) as cursor:
            for statement in (one for some in statements for one in some):
                cursor.execute(statement)

    def _count(self, table: str) -> int:
        with closing(self.database.connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(f"SELECT count(*) FROM {table}")
            return int(cursor.fetchone()[0])

    def _wait(self, side: Side, count: Callable[[], int], wanted: int) -> None:
        """Return when the count is reached. The deadline is by progress; a side that has failed is an error at once."""
        before, checked = -1, 0.0
        deadline = time.monotonic() + PATIENCE_S
        while (now := count()) < wanted:
            if now != before:
                before, deadline = now, time.monotonic() + PATIENCE_S
            elif time.monotonic() > checked + 5:
                checked = time.monotonic()
                if (failure := side.failure()) is not None:
                    raise RuntimeError(f"{side.name} has failed: {failure}")
            if time.monotonic() > deadline:
                problem = f"{side.name} has made no progress for {PATIENCE_S:.0f} s: {now} of {wanted} rows"
                raise RuntimeError(f"{problem}\n{side.describe()}")
            time.sleep(0.02)


async def _create(servers: str, topic: str) -> None:
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topic(topic, 1, 1)


_FIELDS: Final = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "name", "type": "string", "optional": False},
    {"field": "sold", "type": "boolean", "optional": True},
    {"field": "note", "type": "string", "optional": True},
]


def fill_topic(servers: str, topic: str, rows: int) -> None:
    """A topic for sinks: JSON with a schema, as Connect's JsonConverter writes it."""
    asyncio.run(_fill(servers, topic, rows))


async def _fill(servers: str, topic: str, rows: int, step: int = 20_000) -> None:
    await _create(servers, topic)
    schema = {"type": "struct", "name": "item", "optional": False, "fields": _FIELDS}
    async with AsyncProducer(bootstrap_servers=servers, batch_size=1_000_000) as producer:
        for start in range(0, rows, step):
            values = [
                json.dumps({"schema": schema, "payload": _row(index)}).encode()
                for index in range(start + 1, min(start + step, rows) + 1)  # MariaDB takes an id of 0 as none
            ]
            await producer.send_arrow(topic, pa.table({"value": pa.array(values, pa.binary())}))


def _row(index: int) -> dict[str, Any]:
    return {"id": index, "name": f"item {index}", "sold": index % 3 == 0, "note": NOTE}
