"""Table: the options that several commands share, so that they have the same names and help texts in all of them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from barnabas.cli.completing import contexts as complete_contexts

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="BARNABAS_BOOTSTRAP",
        help="The brokers to connect to first, HOST:PORT[,HOST:PORT]. Default: the context's, or 127.0.0.1:9092.",
        show_default=False,
        metavar="HOST:PORT",
    ),
]
CommandConfig = Annotated[
    str | None,
    typer.Option("--command-config", metavar="FILE", help="A .properties file with client settings."),
]
ContextName = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Use this context: a cluster of `barnabas context`.",
        autocompletion=complete_contexts,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of a table for people.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def choose_context(context: ContextName = None) -> None:
    """The options of `barnabas` itself, before the noun."""
    if context is not None:
        os.environ["BARNABAS_CONTEXT"] = context


def noun(help_text: str) -> typer.Typer:
    """A `typer.Typer` for a noun that has verbs. Without a verb, it prints its help."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode="markdown")
