"""Shell: what Kafka's tools have in common: their flags, their client settings, their way of failing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from barnabas import __version__
from barnabas.cli.output import EXIT_FAILED, emit
from barnabas.cli.session import read_properties


class Parser(argparse.ArgumentParser):
    """argparse with Kafka's conventions: long flags in full only, exit code 1, the usage on stderr."""

    def __init__(self, name: str, description: str, *, bootstrap: bool = True) -> None:
        super().__init__(prog=name, description=description, allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"{__version__} (barnabas)")
        if bootstrap:
            self.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="the brokers to ask first")
            self.add_argument("--command-config", metavar="FILE", help="a .properties file with client settings")

    def refuse(self, *flags: str, why: str) -> None:
        """Flags of Kafka's tool that mean nothing here: they are known, and refused with the reason."""
        self.add_argument(*flags, action=_Refusal, nargs="?", help=argparse.SUPPRESS, const=why)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_FAILED, f"{self.prog}: {message}\n")


class _Refusal(argparse.Action):
    """Says why, and leaves."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        parser.error(f"{self.option_strings[0]} is not supported: {self.const}")


def client_settings(options: argparse.Namespace) -> dict[str, object]:
    """The settings of `--command-config` and of tools' `--*-property` flags."""
    return read_properties(getattr(options, "command_config", None))


def split_pairs(pairs: Sequence[str] | None, parser: argparse.ArgumentParser, *, strip: bool = True) -> dict[str, str]:
    """`name=value` arguments, as Kafka takes them. Without `strip` a value may be a blank, e.g. a separator."""
    found = {}
    for pair in pairs or ():
        name, sign, value = pair.partition("=")
        if not sign:
            parser.error(f"{pair!r} is not name=value")
        found[name.strip()] = value.strip() if strip else value
    return found


def split_list(text: str) -> list[str]:
    """`a,b,[c,d],e` as Kafka splits config lists: commas inside brackets stay."""
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
    """Left-aligned columns, each as wide as its widest cell and at least 15, as Kafka's tools print tables."""
    widths = [max(15, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    for row in rows:
        emit(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


__all__ = ["Parser", "client_settings", "emit", "emit_columns", "split_list", "split_pairs"]
