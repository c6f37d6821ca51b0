"""Shell: `kafka-console-share-consumer`: prints the records that a share group delivers, and accepts, releases or
rejects each.
"""

from __future__ import annotations

import argparse
import sys

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.kafka.records.formatting import add_formatter_flags, build_printer
from barnabas.cli.kafka.stopping import until_signal
from barnabas.cli.output import discard_stdout, fail, note
from barnabas.cli.records.line_format import LinePrinter
from barnabas.cli.session import read_properties, run
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.share.session import AcknowledgeType
from barnabas.client.values import ConsumerRecord

_POLL_MS = 500


def build_parser() -> Parser:
    parser = Parser("kafka-console-share-consumer", "Read a topic with a share group, and write to standard output.")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", help="the share group; console-share-consumer if not given")
    parser.add_argument("--max-messages", type=int, default=-1)
    parser.add_argument("--timeout-ms", type=int, default=-1, help="exit if no record arrives for this long")
    outcome = parser.add_mutually_exclusive_group()
    outcome.add_argument("--reject", action="store_true", help="reject the records instead of accepting them")
    outcome.add_argument("--release", action="store_true", help="release the records, so that they come again")
    parser.add_argument("--reject-message-on-error", action="store_true", help="reject a record that cannot be printed")
    add_formatter_flags(parser)
    parser.add_argument("--consumer-property", "--command-property", action="append", dest="consumer_property")
    parser.add_argument("--consumer-config", dest="consumer_config", metavar="FILE", help="as --command-config")
    parser.add_argument("--enable-systest-events", action="store_true")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    printer = build_printer(options, parser)
    settings = _settings(options, parser)
    printing = _Printing(printer, options)
    try:
        run(lambda: _consume(settings, options, printing))
    finally:
        note(f"Processed a total of {printing.count} messages")
        if options.enable_systest_events:
            emit("shutdown_complete")


def _settings(options: argparse.Namespace, parser: Parser) -> dict[str, object]:
    if options.command_config and options.consumer_config:
        parser.error("Options --consumer-config and --command-config cannot be specified together.")
    settings: dict[str, object] = client_settings(options) | read_properties(options.consumer_config)
    properties = split_pairs(options.consumer_property, parser)
    groups = {str(found) for found in (options.group, settings.get("group.id"), properties.get("group.id")) if found}
    if len(groups) > 1:
        names = ", ".join(f"'{name}'" for name in sorted(groups))
        parser.error(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer-config') do not match. Detected group ids: {names}"
        )
    return {
        "client.id": "console-share-consumer",
        **settings,
        **properties,
        "bootstrap.servers": options.bootstrap_server,
        "group.id": groups.pop() if groups else "console-share-consumer",
        "share.acknowledgement.mode": "explicit",
    }


class _Printing:
    """Prints records one by one, and says how each is acknowledged."""

    def __init__(self, printer: LinePrinter | None, options: argparse.Namespace) -> None:
        self._printer = printer
        self._rejects_errors: bool = options.reject_message_on_error
        self._usual = AcknowledgeType.ACCEPT
        if options.reject:
            self._usual = AcknowledgeType.REJECT
        elif options.release:
            self._usual = AcknowledgeType.RELEASE
        self.count = 0

    def write(self, record: ConsumerRecord[bytes | None, bytes | None]) -> AcknowledgeType:
        """Print a record. Raises ValueError if it cannot be printed, and BrokenPipeError if nobody reads the output."""
        self.count += 1
        if self._printer is None:
            return self._usual
        try:
            line = self._printer.format(record)
        except ValueError as error:
            if not self._rejects_errors:
                raise
            note(f"Error processing message, rejecting this message: {error}")
            return AcknowledgeType.REJECT
        sys.stdout.buffer.write(line)
        return self._usual


async def _consume(settings: dict[str, object], options: argparse.Namespace, printing: _Printing) -> None:
    async with AsyncShareConsumer(settings) as consumer:
        await consumer.cluster.reach()
        consumer.subscribe(options.topic)
        with until_signal() as stop:
            await _print(consumer, options, printing)
    stop.exit()


async def _print(consumer: AsyncShareConsumer, options: argparse.Namespace, printing: _Printing) -> None:
    heard_at = consumer.cluster.now()
    while options.max_messages < 0 or printing.count < options.max_messages:
        wait_ms = _POLL_MS if options.timeout_ms < 0 else min(_POLL_MS, max(options.timeout_ms / 4, 1))
        records = await consumer.poll(wait_ms)
        try:
            for record in records:
                if 0 <= options.max_messages <= printing.count:
                    return  # closing releases the other records
                consumer.acknowledge(record, printing.write(record))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            discard_stdout()
            note("Unable to write to standard out, closing consumer.")
            return
        except ValueError as error:
            fail(f"{error}. With --reject-message-on-error such a record is rejected, and the next one is read.")
        if records:
            heard_at = consumer.cluster.now()
        elif 0 <= options.timeout_ms <= (consumer.cluster.now() - heard_at) * 1000:
            note(
                "Error processing message, terminating consumer process: "
                "org.apache.kafka.common.errors.TimeoutException"
            )
            return
