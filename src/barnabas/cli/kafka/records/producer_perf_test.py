"""Shell: `kafka-producer-perf-test`: writes random records as fast as possible and prints throughput and latency."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from barnabas.cli.kafka.arguments import Parser, emit, split_pairs
from barnabas.cli.records.line_format import unescape
from barnabas.cli.session import read_properties, run

if TYPE_CHECKING:
    from barnabas.client.producer.producer import AsyncProducer

_MEBIBYTE = 1024 * 1024
_TRANSACTION_MS: Final = 3_000
"""How long a transaction is open if only a transactional id is given, as in Kafka's tool."""


def main() -> None:
    parser = Parser("kafka-producer-perf-test", "Verify the producer performance.", bootstrap=False)
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--num-records", type=int, required=True)
    parser.add_argument("--throughput", type=float, default=-1, help="records a second; -1 is unlimited")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int)
    payload.add_argument("--payload-file")
    payload.add_argument("--payload-monotonic", action="store_true", help="the payloads are 0, 1, 2, ...")
    parser.add_argument("--payload-delimiter", default="\\n")
    parser.add_argument("--producer-props", "--command-property", nargs="+", dest="producer_props", action="extend")
    parser.add_argument("--producer.config", "--command-config", dest="producer_config")
    parser.add_argument("--reporting-interval", type=int, default=5_000, metavar="MS")
    parser.add_argument("--warmup-records", type=int, default=0)
    parser.add_argument("--transactional-id", help="write in transactions")
    parser.add_argument(
        "--transaction-duration-ms", type=int, metavar="MS", help="commit after this time; 3000 with a transactional id"
    )
    parser.refuse("--print-metrics", why="this client has no table of metrics")
    options = parser.parse_args()
    settings: dict[str, object] = {**read_properties(options.producer_config)}
    settings |= split_pairs(options.producer_props, parser)
    if options.bootstrap_server:
        settings["bootstrap.servers"] = options.bootstrap_server
    if "bootstrap.servers" not in settings:
        parser.error("--bootstrap-server is required, or bootstrap.servers in the settings")
    if not 0 <= options.warmup_records < options.num_records:
        parser.error("--warmup-records must be at least 0 and less than --num-records")
    payloads = None if options.payload_monotonic else _payloads(options)
    if options.transaction_duration_ms is not None and options.transaction_duration_ms <= 0:
        parser.error("--transaction-duration-ms should be greater than 0")
    run(lambda: _produce(_transactional(settings, options), options, payloads))


def _transactional(settings: dict[str, object], options: argparse.Namespace) -> dict[str, object]:
    """The settings with the transactional id, if the records are to be written in transactions."""
    if options.transactional_id:
        return settings | {"transactional.id": options.transactional_id}
    if options.transaction_duration_ms is not None and "transactional.id" not in settings:
        return settings | {"transactional.id": f"performance-producer-{uuid4()}"}
    return settings


def _payloads(options: argparse.Namespace) -> list[bytes]:
    if options.payload_file:
        separator = unescape(options.payload_delimiter).encode()
        found = [part for part in Path(options.payload_file).read_bytes().split(separator) if part]
        if not found:
            raise SystemExit(f"{options.payload_file} contains no payload")
        return found
    letters = random.Random(0)
    return [bytes(letters.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=options.record_size)) for _ in range(100)]


class Stats:
    """The latencies of acknowledged records: of all records, and of those since the last printed line."""

    def __init__(self, interval_ms: int) -> None:
        self.latencies: list[float] = []
        self.size = 0
        self.began = time.perf_counter()
        self._interval_s = interval_ms / 1000
        self._window = (0, 0, self.began)
        """The number of records, the bytes and the time when the last line was printed."""

    def add(self, latency_ms: float, size: int) -> None:
        self.latencies.append(latency_ms)
        self.size += size
        now = time.perf_counter()
        if now - self._window[2] >= self._interval_s:
            self._report(now)

    def _report(self, now: float) -> None:
        records, size, at = self._window
        part = self.latencies[records:]
        seconds = now - at
        self._window = (len(self.latencies), self.size, now)
        emit(
            f"{len(part)} records sent, {len(part) / seconds:.1f} records/sec "
            f"({(self.size - size) / seconds / _MEBIBYTE:.2f} MB/sec), "
            f"{sum(part) / len(part):.1f} ms avg latency, {max(part):.1f} ms max latency."
        )

    def total(self, *, note: str = "") -> None:
        count = len(self.latencies)
        seconds = max(time.perf_counter() - self.began, 1e-9)
        latencies = sorted(self.latencies) or [0.0]
        at = [latencies[min(len(latencies) - 1, int(len(latencies) * q))] for q in (0.5, 0.95, 0.99, 0.999)]
        emit(
            f"{count}{note} records sent, {count / seconds:f} records/sec "
            f"({self.size / seconds / _MEBIBYTE:.2f} MB/sec), {sum(latencies) / len(latencies):.2f} ms avg latency, "
            f"{latencies[-1]:.2f} ms max latency, {at[0]:.0f} ms 50th, {at[1]:.0f} ms 95th, {at[2]:.0f} ms 99th, "
            f"{at[3]:.0f} ms 99.9th."
        )


class _Transactions:
    """Begins a transaction and commits it after some time, again and again; does nothing without a transactional id."""

    def __init__(self, producer: AsyncProducer, settings: dict[str, object], duration_ms: int | None) -> None:
        self._producer = producer
        self._wanted = "transactional.id" in settings
        self._duration_s = (duration_ms or _TRANSACTION_MS) / 1000
        self._until: float | None = None
        """The time at which the open transaction is committed; None if none is open."""

    async def prepare(self) -> None:
        if self._wanted:
            await self._producer.init_transactions()

    async def before_record(self) -> None:
        now = time.perf_counter()
        if not self._wanted or (self._until is not None and now < self._until):
            return
        await self.end()
        self._producer.begin_transaction()
        self._until = now + self._duration_s

    async def end(self) -> None:
        """Commit the open transaction."""
        if self._until is not None:
            self._until = None
            await self._producer.commit_transaction()


async def _produce(settings: dict[str, object], options: argparse.Namespace, payloads: list[bytes] | None) -> None:
    from barnabas.client.producer.producer import AsyncProducer

    topic, count, warmup = options.topic, options.num_records, options.warmup_records
    failures: list[BaseException] = []
    async with AsyncProducer(settings) as producer:
        await producer.cluster.reach()
        await producer.partitions_for(topic)
        transactions = _Transactions(producer, settings, options.transaction_duration_ms)
        await transactions.prepare()
        every = Stats(options.reporting_interval)
        steady: Stats | None = None
        for i in range(count):
            value = b"%d" % i if payloads is None else payloads[i % len(payloads)]
            await transactions.before_record()
            sent = time.perf_counter()
            if warmup and i == warmup:
                steady = Stats(1 << 40)

            def on_delivery(
                _metadata: object,
                error: BaseException | None,
                sent: float = sent,
                size: int = len(value),
                part: Stats | None = steady,
            ) -> None:
                latency_ms = (time.perf_counter() - sent) * 1000
                if error is not None:
                    failures.append(error)
                    return
                every.add(latency_ms, size)
                if part is not None:
                    part.add(latency_ms, size)

            await producer.send(topic, value, on_delivery=on_delivery)
            if options.throughput > 0 and (ahead := i / options.throughput - (sent - every.began)) > 0.005:
                await asyncio.sleep(ahead)
            elif i % 1000 == 0:
                await asyncio.sleep(0)
        await producer.flush()
        await transactions.end()
    if failures:
        raise failures[0]
    every.total()
    if steady is not None:
        steady.total(note=" steady state")
