"""Shell: the `barnabas` command. Only the noun asked for is imported, so that `barnabas serve` starts at once."""

Only what is needed is imported: `barnabas serve` does not load the client, `barnabas topics` does not load the broker.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import typer

NOUNS: Final = ("serve", "topics", "produce", "consume", "configs", "logs", "groups", "cluster")
"""Each is a module of this package with an `app`; the order is that of the help."""


def build(argv: Sequence[str]) -> typer.Typer:
    """The command-line application, with the noun that `argv` names, or with all of them (for help)."""
    app = typer.Typer(
        name="barnabas",
        help="A Kafka-compatible commit log. Start one with `barnabas serve --data-dir DIR`.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_root)
    first = next((word for word in argv if not word.startswith("-")), None)
    for noun in (first,) if first in NOUNS else NOUNS:
        if noun is not None and find_spec(f"barnabas.cli.{noun}") is not None:
            _add(app, noun)
    return app


def _add(app: typer.Typer, noun: str) -> None:
    module = import_module(f"barnabas.cli.{noun}")
    member = getattr(module, "app", None)
    if member is not None:
        app.add_typer(member, name=noun)
    else:
        app.command(noun)(getattr(module, noun))


def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"barnabas {installed('barnabas')}")
        raise typer.Exit


def main() -> None:
    """Entry point of the `barnabas` command."""
    build(sys.argv[1:])()


if __name__ == "__main__":
    main()
