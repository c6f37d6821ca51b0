"""Shell: argument parsing, client settings and error handling, shared by Kafka's tools."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from barnabas import __version__
from barnabas.cli.output import EXIT_FAILED, emit
from barnabas.cli.session import read_properties


class Parser(argparse.ArgumentParser):
    """argparse with Kafka's conventions: no abbreviated flags, exit code 1 for wrong usage, the usage on stderr."""

    def __init__(self, name: str, description: str, *, bootstrap: bool = True) -> None:
        super().__init__(prog=name, description=description, allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"{__version__} (barnabas)")
        if bootstrap:
            self.add_argument(
                "--bootstrap-server", required=True, metavar="HOST:PORT", help="the brokers to connect to first"
            )
            self.add_argument("--command-config", metavar="FILE", help="a .properties file with client settings")

    def refuse(self, *flags: str, why: str) -> None:
        """Reject these flags of Kafka's tool with a reason, because they have no meaning here."""
        self.add_argument(*flags, action=_RejectFlag, nargs="?", help=argparse.SUPPRESS, const=why)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_FAILED, f"{self.prog}: {message}\n")


class _RejectFlag(argparse.Action):
    """Prints why the flag is not supported, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        parser.error(f"{self.option_strings[0]} is not supported: {self.const}")


def client_settings(options: argparse.Namespace) -> dict[str, object]:
    """The settings from `--command-config`, without its addresses: as in Kafka, `--bootstrap-server` precedes them."""
    settings = read_properties(getattr(options, "command_config", None))
    settings.pop("bootstrap.servers", None)
    return settings


def check_deprecated_config(options: argparse.Namespace, parser: argparse.ArgumentParser, role: str) -> None:
    """Warn of the option `--ROLE.config` on stdout, as Kafka does, and reject it beside `--command-config`."""
    if not getattr(options, f"{role}_config"):
        return
    if options.command_config:
        parser.error(f"Options --{role}.config and --command-config are mutually exclusive.")
    emit(
        f"Option --{role}.config has been deprecated and will be removed in a future version. "
        "Use --command-config instead."
    )


def split_pairs(pairs: Sequence[str] | None, parser: argparse.ArgumentParser, *, strip: bool = True) -> dict[str, str]:
    """Parse `name=value` arguments as Kafka does. Without `strip`, a value may be a space, for example as a
    separator.
    """
    found = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not sign:
            parser.error(f"{pair!r} is not name=value")
        found[name.strip()] = value.strip() if strip else value
    return found


def split_list(text: str) -> list[str]:
    """Split `a,b,[c,d],e` as Kafka splits config lists: commas inside brackets do not separate."""
    parts, depth, current = [], 0, ""
    for char in text:
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += char
    return [part.strip() for part in [*parts, current] if part.strip()]


def emit_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns, each as wide as its widest cell and at least 15 characters, as Kafka's tools do."""
    widths = [max(15, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    for row in rows:
        emit(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


__all__ = ["Parser", "client_settings", "emit", "emit_columns", "split_list", "split_pairs"]
