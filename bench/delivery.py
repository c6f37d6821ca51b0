"""What exactly-once delivery adds to a micro-batch of the Spark sink, without Spark.

    python -m bench.delivery --batches 50 --rows 2000

Both deliveries write the same rows with the same calls as Spark's processes make them, in turn, one task after the
other; a broker runs beside. Times are medians in milliseconds. Expected: at most 60 ms more on a quiet machine.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from barnabas.client.blocking import Admin
from barnabas.spark.connection import shared
from barnabas.spark.delivery.client import DeliveryClient
from barnabas.spark.delivery.driver import MicroBatch
from barnabas.spark.delivery.names import SinkName
from barnabas.spark.options import Delivery, QueryMode
from barnabas.spark.sink.options import SinkOptions, parse_sink_options
from barnabas.spark.sink.rows import row_layout
from barnabas.spark.sink.tasks import Attempt, write_in_transaction, write_rows
from barnabas.testing.process import BrokerProcess

QUERY = "bench"
LAYOUT = {"value": "string"}


def rows(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": [f"{number:0100}" for number in range(count)]})


def at_least_once(options: SinkOptions, tasks: int, count: int) -> dict[str, float]:
    began = time.perf_counter()
    for _ in range(tasks):
        write_rows(rows(count), options, row_layout(LAYOUT, options))
    return {"tasks": time.perf_counter() - began}


def exactly_once(options: SinkOptions, batch_id: int, tasks: int, count: int) -> dict[str, float]:
    given = options.exactly_once
    assert given is not None
    name = SinkName(given.id_prefix, QUERY)
    client = shared(DeliveryClient, options.client)
    times = [time.perf_counter()]
    generation = client.recover(name, given.ledger, accept_loss=False)
    times.append(time.perf_counter())
    attempt = Attempt(QUERY, "run", batch_id, 0, 0, generation)
    layout = row_layout(LAYOUT, options)
    written = [
        write_in_transaction(rows(count), options, layout, replace(attempt, partition=task)) for task in range(tasks)
    ]
    times.append(time.perf_counter())
    transactions = tuple(message.transaction for message in written if message.transaction is not None)
    client.commit(name, given.ledger, MicroBatch(batch_id, generation, transactions), accept_loss=False)
    times.append(time.perf_counter())
    return dict(zip(("recover", "tasks", "commit"), (b - a for a, b in itertools.pairwise(times)), strict=True))


def measure(servers: str, batches: int, tasks: int, count: int) -> None:
    given = {"kafka.bootstrap.servers": servers, "topic": "out"}
    options = {kind: parse_sink_options({**given, "delivery": kind.value}, QueryMode.STREAM) for kind in Delivery}
    found: dict[Delivery, list[dict[str, float]]] = {kind: [] for kind in Delivery}
    for batch_id in range(batches + 10):
        found[Delivery.AT_LEAST_ONCE].append(at_least_once(options[Delivery.AT_LEAST_ONCE], tasks, count))
        found[Delivery.EXACTLY_ONCE].append(exactly_once(options[Delivery.EXACTLY_ONCE], batch_id, tasks, count))
    medians = {}
    for kind, measured in found.items():
        warm = measured[10:]
        parts = {part: 1000 * statistics.median(one[part] for one in warm) for part in warm[0]}
        medians[kind] = 1000 * statistics.median(sum(one.values()) for one in warm)
        detail = ", ".join(f"{part} {ms:.1f}" for part, ms in parts.items())
        print(f"{kind.value:14} {medians[kind]:7.1f} ms  ({detail})")
    more = medians[Delivery.EXACTLY_ONCE] - medians[Delivery.AT_LEAST_ONCE]
    ratio = medians[Delivery.EXACTLY_ONCE] / medians[Delivery.AT_LEAST_ONCE]
    print(f"exactly-once adds {more:.1f} ms to a micro-batch of {tasks} x {count} rows (ratio {ratio:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = ["transaction.two.phase.commit.enable=true"]
        with BrokerProcess(Path(folder) / "broker", settings=settings) as broker:
            with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                admin.create_topic("out", 3, 1)
            measure(broker.bootstrap_servers, given.batches, given.tasks, given.rows)


if __name__ == "__main__":
    main()
