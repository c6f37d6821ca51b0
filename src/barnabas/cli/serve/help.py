"""Shell: the options of `barnabas serve` as Typer shows and completes them, from the parser that reads them."""

from __future__ import annotations

import inspect
import sys
from argparse import Action
from collections.abc import Callable
from typing import Annotated, Any

import typer

from barnabas.cli.serve.serve import build_parser, main


def serve_command() -> Callable[..., None]:
    """A command with the options of the parser. It is run for `--help` only: otherwise `app.main` calls the parser
    before Typer is imported."""

    def serve(**_: Any) -> None:
        main(sys.argv[2:])

    parameters = [
        inspect.Parameter(action.dest, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(action))
        for action in build_parser()._actions
        if action.dest != "help" and action.option_strings
    ]
    known: dict[str, inspect.Parameter] = {}
    for parameter in parameters:  # two options may set one value
        name = parameter.name if parameter.name not in known else f"{parameter.name}_{len(known)}"
        known[name] = parameter.replace(name=name)
    serve.__signature__ = inspect.Signature(list(known.values()))  # type: ignore[attr-defined]  # as in PEP 362
    return serve


def _option(action: Action) -> Any:
    choices = [str(choice) for choice in action.choices or ()]
    option = typer.Option(
        *action.option_strings,
        help=(action.help or "").replace("%%", "%"),
        metavar=action.metavar if isinstance(action.metavar, str) else None,
        show_default=False,
        autocompletion=(lambda: choices) if choices else None,
    )
    is_flag = action.nargs == 0
    return Annotated[bool | None if is_flag else str | None, option]
