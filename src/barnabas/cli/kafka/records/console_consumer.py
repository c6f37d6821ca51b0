"""Shell: `kafka-console-consumer`: prints the records of a topic as lines on standard output.

Without --group, Kafka's tool creates a temporary group of its own; this tool assigns the partitions without a group
instead.
"""

from __future__ import annotations

import argparse
import re

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.kafka.records.formatting import Printing, add_formatter_flags, build_printer
from barnabas.cli.output import EXIT_INTERRUPTED, note
from barnabas.cli.records.consuming import ConsumePlan, ConsumeProgress, Start, consume
from barnabas.cli.session import read_properties, run


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
    add_formatter_flags(parser)
    parser.add_argument("--consumer-property", "--command-property", action="append", dest="consumer_property")
    parser.add_argument("--consumer.config", "--consumer-config", dest="consumer_config", metavar="FILE")
    parser.add_argument("--skip-message-on-error", action="store_true")
    parser.add_argument("--enable-systest-events", action="store_true")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    _check(options, parser)
    sink = Printing(build_printer(options, parser), skip_errors=options.skip_message_on_error)
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


async def _consume(settings: dict[str, object], plan: ConsumePlan, sink: Printing) -> ConsumeProgress:
    outcome = await consume(settings, plan, sink)
    outcome.skipped = sink.skipped
    return outcome


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
