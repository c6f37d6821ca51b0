"""Shell: `kafka-e2e-latency`: writes records one at a time, and measures how long each takes to a consumer."""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.output import fail
from barnabas.cli.session import run

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import AsyncConsumer, Record

_POLL_MS: Final = 60_000
_POSITIONS: Final = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size", "command-config")
_FLAGS: Final = tuple(f"--{name}" for name in _POSITIONS[:5])


def build_parser() -> Parser:
    parser = Parser("kafka-e2e-latency", "Measure the latency from the producer to the consumer.")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--num-records", type=int, required=True)
    parser.add_argument("--producer-acks", required=True, help="1 or all")
    parser.add_argument("--record-size", type=int, required=True, metavar="BYTES")
    parser.add_argument("--record-key-size", type=int, default=0, metavar="BYTES")
    parser.add_argument("--num-headers", type=int, default=0)
    parser.add_argument("--record-header-key-size", type=int, default=0, metavar="BYTES")
    parser.add_argument("--record-header-size", type=int, default=0, metavar="BYTES", help="-1: headers have no value")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args(_named(sys.argv[1:]))
    _check(options, parser)
    run(lambda: _measure(client_settings(options) | {"bootstrap.servers": options.bootstrap_server}, options))


def _named(arguments: list[str]) -> list[str]:
    """The arguments as flags: the tool of Kafka before 4.2 took five or six arguments by position."""
    if not arguments or any(part in _FLAGS or part.startswith("-") for part in arguments):
        return arguments
    if len(arguments) not in (5, 6):
        fail(
            f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got {len(arguments)}. "
            "Usage: bootstrap-server topic num-records producer-acks record-size [optional] command-config"
        )
    emit(
        "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use named "
        "arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, "
        "--command-config"
    )
    return [word for name, value in zip(_POSITIONS, arguments, strict=False) for word in (f"--{name}", value)]


def _check(options: argparse.Namespace, parser: Parser) -> None:
    if options.producer_acks not in ("1", "all"):
        parser.error(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. "
            "Please use '1' or 'all'."
        )
    if options.num_records <= 0:
        parser.error("Value for --num-records must be a positive integer.")
    for name in ("record-size", "record-key-size", "record-header-key-size", "num-headers"):
        if getattr(options, name.replace("-", "_")) < 0:
            parser.error(f"Value for --{name} must be a non-negative integer.")
    if options.record_header_size < -1:
        parser.error("Value for --record-header-size must be a non-negative integer or -1 for null header value.")


async def _measure(settings: dict[str, object], options: argparse.Namespace) -> None:
    from barnabas.client.consumer.consumer import AsyncConsumer
    from barnabas.client.producer.producer import AsyncProducer

    writing = {**settings, "linger.ms": 0, "acks": options.producer_acks}
    if options.producer_acks == "1":
        writing.setdefault("enable.idempotence", "false")
    reading = {
        **settings,
        "group.id": f"test-group-{int(time.time() * 1000)}",
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
        "fetch.max.wait.ms": 0,
    }
    rng = random.Random(0)
    latencies: list[float] = []
    async with AsyncConsumer(reading) as consumer, AsyncProducer(writing) as producer:
        await consumer.cluster.reach()
        await _prepare(consumer, options.topic, settings)
        for i in range(options.num_records):
            key = _letters(rng, options.record_key_size)
            value = _letters(rng, options.record_size)
            headers = tuple(_header(rng, options) for _ in range(options.num_headers))
            began = time.perf_counter()
            await producer.send_and_wait(options.topic, value, key=key, headers=headers)
            records = await consumer.poll(_POLL_MS)
            latency_ms = (time.perf_counter() - began) * 1000
            _compare((key, value, headers), records)
            latencies.append(latency_ms)
            if i % 1000 == 0:
                emit(f"{i}\t{latency_ms}")
        await consumer.commit()
    _report(latencies)


async def _prepare(consumer: AsyncConsumer, topic: str, settings: dict[str, object]) -> None:
    """Create the topic if there is none, and begin at its end."""
    from barnabas.client.admin import AsyncAdmin

    async with AsyncAdmin(settings) as admin:
        if topic not in {listing.name for listing in await admin.list_topics()}:
            emit(f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
            await admin.create_topic(topic, 1, 1)
    partitions = await consumer.partitions_for(topic)
    consumer.assign(partitions)
    consumer.seek_to_end(*partitions)
    for partition in partitions:
        await consumer.position(partition)


def _letters(rng: random.Random, size: int) -> bytes:
    return bytes([rng.randrange(65, 91)]) * size


def _header(rng: random.Random, options: argparse.Namespace) -> tuple[str, bytes | None]:
    name = _letters(rng, options.record_header_key_size).decode()
    return name, None if options.record_header_size == -1 else _letters(rng, options.record_header_size)


def _compare(sent: tuple[bytes, bytes, tuple[tuple[str, bytes | None], ...]], records: list[Record]) -> None:
    """Exit if the consumer has not read exactly the record that was sent."""
    if not records:
        fail(f"poll() timed out before finding a result (timeout:[{_POLL_MS}ms])")
    key, value, headers = sent
    read = records[0]
    for name, found, expected in (("value", read.value, value), ("key", read.key, key)):
        if found != expected:
            fail(f"The message {name} read [{found!r}] did not match the message {name} sent [{expected!r}]")
    if tuple(read.headers) != headers:
        fail(f"The message headers read [{read.headers!r}] did not match the message headers sent [{headers!r}]")
    if len(records) != 1:
        fail(f"Only one result was expected during this test. We found [{len(records)}]")


def _report(latencies: list[float]) -> None:
    emit(f"Avg latency: {sum(latencies) / len(latencies):.4f} ms")
    whole = sorted(int(latency) for latency in latencies)
    at = [whole[int(len(whole) * quantile)] for quantile in (0.5, 0.99, 0.999)]
    emit(f"Percentiles: 50th = {at[0]}, 99th = {at[1]}, 99.9th = {at[2]}")
