"""Shell: the `barnabas` command. `main` imports the module of the given noun only, so that `barnabas serve` starts
fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

NOUNS = {
    "serve": "serve.serve",
    "topics": "topics",
    "produce": "records.produce",
    "consume": "records.consume",
    "groups": "groups.groups",
    "share-groups": "groups.share_groups",
    "transactions": "groups.transactions",
    "users": "security.users",
    "tokens": "security.tokens",
    "configs": "configs",
    "acls": "security.acls",
    "quotas": "security.quotas",
    "logs": "logs.logs",
    "cluster": "cluster.cluster",
    "links": "links.links",
    "backup": "backup.backup",
    "restore": "backup.restore",
    "verify": "backup.verify",
    "top": "watch.top",
    "clients": "watch.clients",
    "context": "context",
    "schemas": "records.schemas",
    "registry": "serve.registry",
    "console": "serve.console",
    "pipelines": "spark.pipelines",
    "connect": "spark.connect",
    "mirror": "spark.mirror",
    "completion": "completion",
}
"""The module below `barnabas.cli` of each noun, in the order in which `barnabas --help` lists the nouns.

To add a noun: add its row here, and add the module. `build_app` registers one of two things from that module:

- `app`, a `typer.Typer` made by `options.noun`, if the noun has verbs (`barnabas topics create`);
- otherwise the function that has the noun's name, if the noun is a command by itself (`barnabas produce`).

A call that the administrative client lacks goes to `client/admin/<subject>.py`, `client/admin/__init__.py` and
`client/blocking.py`. Add an example to docs/CLI.md.

`serve` is the only exception: its module has a `main` with an argument parser of its own (see `cli/serve/serve.py`).
"""

HELP = """A Kafka-compatible commit log. Kafka's clients and tools work with it unchanged.

`barnabas serve --data-dir data` starts a broker; the other commands connect to a broker, Barnabas' or Apache Kafka's.
"""


def build_app(nouns: Iterable[str] = NOUNS) -> Any:
    """Build the command line that has these nouns."""
    import typer
    from typer.core import TyperGroup

    from barnabas import __version__
    from barnabas.cli.options import choose_context

    class Ordered(TyperGroup):
        """Lists the nouns in the order of NOUNS. Typer would list single commands before commands with verbs."""

        def list_commands(self, ctx: Any) -> list[str]:
            order = {noun: place for place, noun in enumerate(NOUNS)}
            return sorted(super().list_commands(ctx), key=lambda name: order.get(name, len(order)))

    app = typer.Typer(
        name="barnabas", help=HELP, no_args_is_help=True, rich_markup_mode="markdown", add_completion=False, cls=Ordered
    )

    app.callback()(choose_context)
    for noun in nouns:
        if noun == "serve":
            _list_serve(app)
            continue
        module = import_module(f"barnabas.cli.{NOUNS[noun]}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=noun)
        else:
            app.command(noun)(getattr(module, noun))

    @app.command("version")
    def version() -> None:
        """Show the version.

        Example: `barnabas version`
        """
        typer.echo(f"barnabas {__version__}")

    return app


def _list_serve(app: Any) -> None:
    """List `serve` among the nouns in the help. `main` calls `serve.main` directly, before Typer is imported."""
    from barnabas.cli.serve import serve
    from barnabas.cli.serve.help import serve_command

    app.command("serve", help=serve.HELP)(serve_command())


def main() -> None:
    """The entry point. `barnabas NOUN ...` imports the module of that noun only."""
    noun = given_noun(sys.argv)
    if "_BARNABAS_COMPLETE" in os.environ:
        from barnabas.cli.completing import complete

        raise SystemExit(complete(build_app, NOUNS))
    if noun == "serve" and "-h" in sys.argv:
        sys.argv[1:] = ["serve", "--help"]
    if noun == "serve" and sys.argv[1] == "serve" and "--help" not in sys.argv:
        from barnabas.cli.serve.serve import main as serve

        serve(sys.argv[2:])
        return
    if noun == "--version":
        from barnabas import __version__

        sys.stdout.write(f"barnabas {__version__}\n")
        return
    from barnabas.cli.output import EXIT_USAGE, fail

    try:
        build_app((noun,) if noun in NOUNS else NOUNS)()
    except ValueError as error:  # arguments that only the command itself can check
        fail(str(error), EXIT_USAGE)
    except ModuleNotFoundError as error:
        from barnabas.core.extras import missing_extra

        if advice := missing_extra(error):
            fail(advice, EXIT_USAGE)
        raise


def given_noun(arguments: Sequence[str]) -> str:
    """The noun of the command line, which `--context NAME` or `--context=NAME` may precede."""
    match arguments[1:]:
        case ["--context", _, noun, *_]:
            return noun
        case [option, noun, *_] if option.startswith("--context="):
            return noun
        case [noun, *_]:
            return noun
    return ""


if __name__ == "__main__":
    main()
