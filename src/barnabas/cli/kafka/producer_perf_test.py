"""Shell: `kafka-producer-perf-test`: writes random records as fast as it may, and says how fast that was."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from barnabas.cli.kafka.arguments import Parser, emit, split_pairs
from barnabas.cli.line_format import unescape
from barnabas.cli.session import read_properties, run


def main() -> None:
    parser = Parser("kafka-producer-perf-test", "Verify the producer performance.", bootstrap=False)
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--num-records", type=int, required=True)
    parser.add_argument("--throughput", type=float, default=-1, help="records a second; -1 is unlimited")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int)
    payload.add_argument("--payload-file")
    parser.add_argument("--payload-delimiter", default="\\n")
    parser.add_argument("--producer-props", "--command-property", nargs="+", dest="producer_props", action="extend")
    parser.add_argument("--producer.config", "--command-config", dest="producer_config")
    options = parser.parse_args()
    settings: dict[str, object] = {**read_properties(options.producer_config)}
    settings |= split_pairs(options.producer_props, parser)
    if options.bootstrap_server:
        settings["bootstrap.servers"] = options.bootstrap_server
    payloads = _payloads(options.record_size, options.payload_file, options.payload_delimiter)
    run(lambda: _produce(settings, options.topic, options.num_records, options.throughput, payloads))


def _payloads(size: int | None, path: str | None, delimiter: str) -> list[bytes]:
    if path:
        separator = unescape(delimiter).encode()
        return [part for part in Path(path).read_bytes().split(separator) if part]
    letters = random.Random(0)
    return [bytes(letters.choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=size or 1)) for _ in range(100)]


async def _produce(
    settings: dict[str, object], topic: str, count: int, throughput: float, payloads: list[bytes]
) -> None:
    from barnabas.client.producer import AsyncProducer

    latencies: list[float] = []
    failures: list[BaseException] = []
    size = 0
    async with AsyncProducer(settings) as producer:
        await producer.partitions_for(topic)
        began = time.perf_counter()
        for i in range(count):
            value = payloads[i % len(payloads)]
            size += len(value)
            sent = time.perf_counter()

            def on_delivery(_metadata: object, error: BaseException | None, sent: float = sent) -> None:
                latencies.append((time.perf_counter() - sent) * 1000)
                if error is not None:
                    failures.append(error)

            await producer.send(topic, value, on_delivery=on_delivery)
            if throughput > 0 and (ahead := i / throughput - (sent - began)) > 0.005:
                await asyncio.sleep(ahead)
            elif i % 1000 == 0:
                await asyncio.sleep(0)
        await producer.flush()
        seconds = time.perf_counter() - began
    if failures:
        raise failures[0]
    latencies.sort()
    at = [latencies[min(len(latencies) - 1, int(len(latencies) * q))] for q in (0.5, 0.95, 0.99, 0.999)]
    emit(
        f"{count} records sent, {count / seconds:.1f} records/sec ({size / seconds / 1048576:.2f} MB/sec), "
        f"{sum(latencies) / len(latencies):.2f} ms avg latency, {latencies[-1]:.2f} ms max latency, "
        f"{at[0]:.0f} ms 50th, {at[1]:.0f} ms 95th, {at[2]:.0f} ms 99th, {at[3]:.0f} ms 99.9th."
    )
