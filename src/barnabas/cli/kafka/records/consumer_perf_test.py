"""Shell: `kafka-consumer-perf-test`: reads records as fast as possible and prints the throughput in Kafka's CSV
columns.
"""

from __future__ import annotations

import argparse
import random
import re
import threading
import time
from datetime import datetime
from typing import Any

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.output import EXIT_INTERRUPTED, note
from barnabas.cli.records.consuming import ConsumePlan, ConsumeProgress, consume
from barnabas.cli.session import read_properties, run
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.core.ids import TopicPartition

_MEBIBYTE = 1024 * 1024
_FETCH_COLUMNS = ", rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def build_parser() -> Parser:
    parser = Parser("kafka-consumer-perf-test", "Verify the consumer performance.")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic")
    topics.add_argument("--include", metavar="REGEX")
    parser.add_argument("--num-records", "--messages", type=int, required=True, dest="num_records")
    parser.add_argument("--group", default=f"perf-consumer-{random.randrange(100_000)}")
    parser.add_argument("--fetch-size", type=int, default=_MEBIBYTE)
    parser.add_argument("--socket-buffer-size", type=int, default=2 * _MEBIBYTE)
    parser.add_argument("--from-latest", action="store_true")
    parser.add_argument(
        "--timeout", type=int, default=10_000, metavar="MS", help="exit if no record arrives for this long"
    )
    parser.add_argument("--reporting-interval", type=int, default=5_000, metavar="MS")
    parser.add_argument("--show-detailed-stats", action="store_true")
    parser.add_argument("--hide-header", action="store_true")
    parser.add_argument(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="a pattern of java.text.SimpleDateFormat"
    )
    parser.add_argument("--command-property", "--consumer-property", action="append")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE")
    parser.refuse("--print-metrics", why="this client has no table of metrics")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    settings: dict[str, object] = {
        **client_settings(options),
        **read_properties(options.consumer_config),
        **split_pairs(options.command_property, parser),
        "bootstrap.servers": options.bootstrap_server,
        "group.id": options.group,
        "receive.buffer.bytes": options.socket_buffer_size,
        "max.partition.fetch.bytes": options.fetch_size,
        "auto.offset.reset": "latest" if options.from_latest else "earliest",
        "check.crcs": "false",
    }
    plan = ConsumePlan(
        topic=options.topic,
        include=re.compile(options.include) if options.include else None,
        group=True,
        records_max=options.num_records,
        idle_ms=options.timeout,
    )
    stats = _Stats(options)
    if not options.hide_header:
        emit(stats.header())
    outcome = run(lambda: consume(settings, plan, stats, listener=stats.rebalances))
    if outcome.ended_by == "idle":
        note(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({options.timeout} ms) "
            "exceeded. You can use the --timeout option to increase the timeout."
        )
    stats.finish(outcome)
    if outcome.ended_by == "interrupted":
        raise SystemExit(EXIT_INTERRUPTED)


class _Rebalances(RebalanceListener):
    """Measures how long the consumer had no partitions because of rebalances."""

    def __init__(self) -> None:
        self.total_ms = 0.0
        self._since = time.time()

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        self.total_ms += (time.time() - self._since) * 1000

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        self._since = time.time()


class _Stats:
    """A sink that only counts records. With --show-detailed-stats, it prints a line in each reporting interval."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._detailed: bool = options.show_detailed_stats
        self._interval_s = options.reporting_interval / 1000
        self._date_format: str = options.date_format
        self._bytes = self._records = 0
        self._reported = (time.time(), 0, 0, 0.0)
        """The time of the last printed line, and the bytes, records and rebalance time until then."""
        self._began = time.time()
        self.rebalances = _Rebalances()

    def header(self) -> str:
        first = "time, threadId" if self._detailed else "start.time, end.time"
        return f"{first}, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec{_FETCH_COLUMNS}"

    def write(self, records: list[Any]) -> int:
        size = 0
        for record in records:
            size += (len(record.key) if record.key else 0) + (len(record.value) if record.value else 0)
        self._bytes += size
        self._records += len(records)
        if self._detailed and time.time() - self._reported[0] >= self._interval_s:
            self._report()
        return size

    def _report(self) -> None:
        now = time.time()
        then, size, records, rebalanced_ms = self._reported
        self._reported = (now, self._bytes, self._records, self.rebalances.total_ms)
        elapsed_s = max(now - then, 1e-3)
        rebalance_ms = self.rebalances.total_ms - rebalanced_ms
        fetch_s = max(elapsed_s - rebalance_ms / 1000, 1e-3)
        mebibytes, count = (self._bytes - size) / _MEBIBYTE, self._records - records
        emit(
            f"{self._date(now)}, {threading.get_native_id()}, {self._bytes / _MEBIBYTE:.4f}, "
            f"{mebibytes / elapsed_s:.4f}, {self._records}, {count / elapsed_s:.4f}, {rebalance_ms:.0f}, "
            f"{fetch_s * 1000:.0f}, {mebibytes / fetch_s:.4f}, {count / fetch_s:.4f}"
        )

    def finish(self, outcome: ConsumeProgress) -> None:
        ended = time.time()
        if self._detailed:
            self._report()
            return
        seconds = max(ended - self._began, 1e-3)
        fetch_s = max(seconds - self.rebalances.total_ms / 1000, 1e-3)
        mebibytes = self._bytes / _MEBIBYTE
        emit(
            f"{self._date(self._began)}, {self._date(ended)}, {mebibytes:.4f}, {mebibytes / seconds:.4f}, "
            f"{outcome.records}, {outcome.records / seconds:.4f}, {self.rebalances.total_ms:.0f}, "
            f"{fetch_s * 1000:.0f}, {mebibytes / fetch_s:.4f}, {outcome.records / fetch_s:.4f}"
        )

    def _date(self, moment: float) -> str:
        return format_date(datetime.fromtimestamp(moment), self._date_format)


_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p"}


def format_date(moment: datetime, pattern: str) -> str:
    """Format a time with the fields of Java's SimpleDateFormat that log files use: yyyy, MM, dd, HH, mm, ss, SSS, a."""

    def field(match: re.Match[str]) -> str:
        letters = match[0]
        if letters == "SSS":
            return f"{moment.microsecond // 1000:03d}"
        return moment.strftime(_LETTERS[letters]) if letters in _LETTERS else letters

    return re.sub(r"([A-Za-z])\1*", field, pattern)
