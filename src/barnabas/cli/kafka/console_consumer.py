"""Shell: `kafka-console-consumer`: prints the records of a topic as lines on standard output.

Without --group, Kafka's tool creates a temporary group of its own; this tool assigns the partitions without a group
instead.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from barnabas.cli.consume import Lines
from barnabas.cli.consuming import ConsumePlan, ConsumeProgress, Start, consume
from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.line_format import LinePrinter
from barnabas.cli.output import EXIT_INTERRUPTED, note
from barnabas.cli.session import read_properties, run

_FORMATTERS = ("DefaultMessageFormatter", "NoOpMessageFormatter")


def build_parser() -> Parser:
    parser = Parser("kafka-console-consumer", "Read topics and write their records to standard output.")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic")
    topics.add_argument("--include", metavar="REGEX", help="all topics whose whole name matches")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset", help="earliest, latest or a number; needs --partition")
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--group")
    parser.add_argument("--max-messages", type=int, default=-1)
    parser.add_argument("--timeout-ms", type=int, default=-1, help="exit if no record arrives for this long")
    parser.add_argument("--isolation-level", choices=["read_committed", "read_uncommitted"], default="read_uncommitted")
    parser.add_argument("--formatter", default=_FORMATTERS[0], metavar="CLASS")
    parser.add_argument("--formatter-property", "--property", action="append", dest="formatter_property")
    parser.add_argument("--formatter-config", metavar="FILE", help="a .properties file for the formatter")
    parser.add_argument("--key-deserializer", metavar="CLASS")
    parser.add_argument("--value-deserializer", metavar="CLASS")
    parser.add_argument("--consumer-property", "--command-property", action="append", dest="consumer_property")
    parser.add_argument("--consumer.config", "--consumer-config", dest="consumer_config", metavar="FILE")
    parser.add_argument("--skip-message-on-error", action="store_true")
    parser.add_argument("--enable-systest-events", action="store_true")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    _check(options, parser)
    sink = _Printing(_printer(options, parser), skip_errors=options.skip_message_on_error)
    settings = _settings(options, parser)
    plan = _plan(options, grouped=bool(settings.get("group.id")))
    if options.enable_systest_events:
        emit('{"name":"startup_complete"}')
    outcome = run(lambda: _consume(settings, plan, sink))
    if sink.error is not None:
        note(f"Error processing message, terminating consumer process: {sink.error}")
    elif outcome.ended_by == "idle":
        note("Error processing message, terminating consumer process: org.apache.kafka.common.errors.TimeoutException")
    elif outcome.ended_by == "pipe":
        note("Unable to write to standard out, closing consumer.")
    note(f"Processed a total of {outcome.records} messages")
    if outcome.skipped:
        note(f"{outcome.skipped} message(s) could not be shown and were skipped")
    if options.enable_systest_events:
        emit('{"name":"shutdown_complete"}')
    if outcome.ended_by == "interrupted":
        raise SystemExit(EXIT_INTERRUPTED)


async def _consume(settings: dict[str, object], plan: ConsumePlan, sink: _Printing) -> ConsumeProgress:
    outcome = await consume(settings, plan, sink)
    outcome.skipped = sink.skipped
    return outcome


class _Printing:
    """A sink that prints records. A record that cannot be formatted ends the tool, or is skipped with `skip_errors`."""

    def __init__(self, printer: LinePrinter | None, *, skip_errors: bool) -> None:
        self._printer = printer
        self._lines = Lines(sys.stdout.buffer, self._format)
        self._skip_errors = skip_errors
        self.skipped = 0
        self.error: ValueError | None = None

    def write(self, records: list[Any]) -> int:
        if self._printer is None:
            return 0
        return self._lines.write(records)

    def _format(self, records: Any) -> bytes:
        assert self._printer is not None
        try:
            return self._printer.format_many(records)
        except ValueError:
            return b"".join(self._one_by_one(records))

    def _one_by_one(self, records: Any) -> list[bytes]:
        assert self._printer is not None
        lines: list[bytes] = []
        for record in records:
            try:
                lines.append(self._printer.format(record))
            except ValueError as error:
                if not self._skip_errors:
                    self.error = error
                    break
                self.skipped += 1
        return lines


def _check(options: argparse.Namespace, parser: Parser) -> None:
    if options.partition is not None and options.topic is None:
        parser.error("The topic is required when partition is specified.")
    if options.partition is not None and options.group is not None:
        parser.error("Options group and partition cannot be specified together.")
    if options.offset is not None and options.partition is None:
        parser.error("The partition is required when offset is specified.")
    if options.offset is not None and options.from_beginning:
        parser.error("Options from-beginning and offset cannot be specified together.")
    if options.offset is not None and not re.fullmatch(r"earliest|latest|\d+", options.offset.lower()):
        reason = "The provided offset value '{}' is incorrect. Valid values are 'earliest', 'latest', or a"
        parser.error(reason.format(options.offset) + " non-negative long.")
    if options.formatter.rpartition(".")[2] not in _FORMATTERS:
        parser.error(
            f"--formatter {options.formatter}: Java classes cannot be loaded; the formatters "
            f"are {', '.join(_FORMATTERS)}. "
            "For internal topics use the decoders of kafka-dump-log."
        )


def _printer(options: argparse.Namespace, parser: Parser) -> LinePrinter | None:
    if options.formatter.endswith(_FORMATTERS[1]):
        return None
    properties = {name: str(value) for name, value in read_properties(options.formatter_config).items()}
    properties |= split_pairs(options.formatter_property, parser, strip=False)
    for part in ("key", "value"):
        if (given := getattr(options, f"{part}_deserializer")) is not None:
            properties[f"{part}.deserializer"] = given
    try:
        return LinePrinter.from_properties(properties)
    except ValueError as error:
        parser.error(str(error))


def _settings(options: argparse.Namespace, parser: Parser) -> dict[str, object]:
    settings: dict[str, object] = client_settings(options) | read_properties(options.consumer_config)
    settings |= split_pairs(options.consumer_property, parser)
    settings["bootstrap.servers"] = options.bootstrap_server
    settings["isolation.level"] = options.isolation_level
    if options.group is not None:
        if settings.get("group.id") not in (None, options.group):
            parser.error("The group ids provided in different places (--group, or group.id in the settings) differ")
        settings["group.id"] = options.group
    policy = str(settings.get("auto.offset.reset", "")).lower()
    if options.from_beginning and policy == "latest":
        parser.error("Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest'; drop one of them")
    if options.from_beginning:
        settings["auto.offset.reset"] = "earliest"
    return settings


def _plan(options: argparse.Namespace, *, grouped: bool) -> ConsumePlan:
    grouped = grouped and options.partition is None
    start = Start.parse((options.offset or ("earliest" if options.from_beginning else "latest")).lower())
    return ConsumePlan(
        topic=options.topic,
        include=re.compile(options.include) if options.include is not None else None,
        partitions=() if options.partition is None else (options.partition,),
        start=start,
        group=grouped,
        records_max=options.max_messages if options.max_messages >= 0 else None,
        idle_ms=options.timeout_ms if options.timeout_ms >= 0 else None,
        wait_for_topic=True,
    )
