"""Shell: `kafka-share-consumer-perf-test`: reads records as a share group, and prints the throughput in Kafka's CSV
columns.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass
from datetime import datetime

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.kafka.records.consumer_perf_test import format_date
from barnabas.cli.kafka.stopping import until_signal
from barnabas.cli.session import read_properties, run
from barnabas.client.share.consumer import AsyncShareConsumer

_MEBIBYTE = 1024 * 1024
_POLL_MS = 100


def build_parser() -> Parser:
    parser = Parser("kafka-share-consumer-perf-test", "Verify the share consumer performance.")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--num-records", "--messages", type=int, required=True, dest="num_records")
    parser.add_argument("--group", default="perf-share-consumer")
    parser.add_argument("--fetch-size", type=int, default=_MEBIBYTE)
    parser.add_argument("--socket-buffer-size", type=int, default=2 * _MEBIBYTE)
    parser.add_argument("--threads", type=int, default=1, help="the number of share consumers")
    parser.add_argument(
        "--timeout", type=int, default=10_000, metavar="MS", help="exit if no record arrives for this long"
    )
    parser.add_argument("--reporting-interval", type=int, default=5_000, metavar="MS")
    parser.add_argument("--show-detailed-stats", action="store_true", help="a line in each reporting interval")
    parser.add_argument("--show-consumer-stats", action="store_true", help="a line for each share consumer")
    parser.add_argument("--hide-header", action="store_true")
    parser.add_argument(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="a pattern of java.text.SimpleDateFormat"
    )
    parser.add_argument("--command-property", action="append")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="as --command-config")
    parser.refuse("--print-metrics", why="this client has no table of metrics")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if options.reporting_interval <= 0:
        parser.error("Reporting interval must be greater than 0.")
    if options.threads < 1:
        parser.error("--threads must be at least 1")
    settings: dict[str, object] = {
        "client.id": "perf-share-consumer-client",
        **client_settings(options),
        **read_properties(options.consumer_config),
        **split_pairs(options.command_property, parser),
        "bootstrap.servers": options.bootstrap_server,
        "group.id": options.group,
        "receive.buffer.bytes": options.socket_buffer_size,
        "fetch.max.bytes": options.fetch_size,
        "check.crcs": "false",
    }
    if not options.hide_header:
        emit("start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms")
    run(lambda: _measure(settings, options))


@dataclass(slots=True)
class _Counts:
    """What one share consumer has read."""

    client_id: str
    records: int = 0
    size: int = 0


async def _measure(settings: dict[str, object], options: argparse.Namespace) -> None:
    name = str(settings["client.id"])
    names = [name] if options.threads == 1 else [f"{name}-{i + 1}" for i in range(options.threads)]
    counts = [_Counts(client_id) for client_id in names]
    consumers = [AsyncShareConsumer({**settings, "client.id": client_id}) for client_id in names]
    try:
        await consumers[0].cluster.reach()
        began = time.time()
        with until_signal() as stop:
            async with asyncio.TaskGroup() as group:
                for index, consumer in enumerate(consumers):
                    group.create_task(_read(consumer, index, counts, options))
        ended = time.time()
        _report(counts, began, ended, options)
        for consumer in consumers:
            await consumer.commit()
    finally:
        for consumer in consumers:
            await consumer.close(500)
    stop.exit()


async def _read(consumer: AsyncShareConsumer, index: int, counts: list[_Counts], options: argparse.Namespace) -> None:
    """Read until all share consumers together have read --num-records, or until no record arrives."""
    mine = counts[index]
    consumer.subscribe(options.topic)
    heard_at = reported_at = time.time()
    records_then = size_then = 0
    while sum(each.records for each in counts) < options.num_records:
        records = await consumer.poll(_POLL_MS)
        now = time.time()
        if records:
            heard_at = now
        elif (now - heard_at) * 1000 > options.timeout:
            return
        mine.records += len(records)
        mine.size += sum((len(r.key) if r.key else 0) + (len(r.value) if r.value else 0) for r in records)
        if records and (now - reported_at) * 1000 >= options.reporting_interval:
            if options.show_detailed_stats:
                seconds = now - reported_at
                emit(
                    f"{_date(reported_at, options)}, {_date(now, options)}, {mine.size / _MEBIBYTE:.4f}, "
                    f"{(mine.size - size_then) / _MEBIBYTE / seconds:.4f}, "
                    f"{(mine.records - records_then) / seconds:.4f}, {mine.records}, {seconds * 1000:.0f} "
                    f"for share consumer {index + 1}"
                )
            reported_at, records_then, size_then = now, mine.records, mine.size


def _report(counts: list[_Counts], began: float, ended: float, options: argparse.Namespace) -> None:
    if options.show_consumer_stats:
        for index, each in enumerate(counts):
            line = _line(each.size, each.records, began, ended, options)
            emit(f"Share consumer {index + 1} having client id {each.client_id} consumption metrics- {line}")
    records = sum(each.records for each in counts)
    if records < options.num_records:
        emit(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({options.timeout} ms) "
            "exceeded. You can use the --timeout option to increase the timeout."
        )
    emit(_line(sum(each.size for each in counts), records, began, ended, options))


def _line(size: int, records: int, began: float, ended: float, options: argparse.Namespace) -> str:
    seconds = max(ended - began, 1e-3)
    return (
        f"{_date(began, options)}, {_date(ended, options)}, {size / _MEBIBYTE:.4f}, {size / _MEBIBYTE / seconds:.4f}, "
        f"{records / seconds:.4f}, {records}, {seconds * 1000:.0f}"
    )


def _date(moment: float, options: argparse.Namespace) -> str:
    return format_date(datetime.fromtimestamp(moment), options.date_format)
