"""Shell: how the console consumers print records: the formatter's flags, and a sink that prints."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from barnabas.cli.kafka.arguments import Parser, split_pairs
from barnabas.cli.records.consume import Lines
from barnabas.cli.records.line_format import LinePrinter
from barnabas.cli.session import read_properties

FORMATTERS: Final = ("DefaultMessageFormatter", "NoOpMessageFormatter")


def add_formatter_flags(parser: Parser) -> None:
    parser.add_argument("--formatter", default=FORMATTERS[0], metavar="CLASS")
    parser.add_argument("--formatter-property", "--property", action="append", dest="formatter_property")
    parser.add_argument("--formatter-config", metavar="FILE", help="a .properties file for the formatter")
    parser.add_argument("--key-deserializer", metavar="CLASS")
    parser.add_argument("--value-deserializer", metavar="CLASS")


def build_printer(options: argparse.Namespace, parser: Parser) -> LinePrinter | None:
    """The printer for the flags; None for the formatter that prints nothing."""
    if options.formatter.rpartition(".")[2] not in FORMATTERS:
        parser.error(
            f"--formatter {options.formatter}: Java classes cannot be loaded; the formatters "
            f"are {', '.join(FORMATTERS)}. "
            "For internal topics use the decoders of kafka-dump-log."
        )
    if options.formatter.endswith(FORMATTERS[1]):
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


class Printing:
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
