"""Shell: the `barnabas` command. Only the noun asked for is imported, so that `barnabas serve` starts at once."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

NOUNS = (
    "serve",
    "topics",
    "produce",
    "consume",
    "groups",
    "share-groups",
    "transactions",
    "configs",
    "logs",
    "cluster",
    "registry",
)
"""In the order in which help shows them; each is a module of this package, with an `app` or a function of its name
(`serve` alone has a `main`)."""

HELP = """A Kafka-compatible commit log. Kafka's clients and tools work with it unchanged.

`barnabas serve --data-dir data` starts a broker; the other commands talk to one, ours or Apache Kafka's.
"""


def build_app(nouns: tuple[str, ...] = NOUNS) -> Any:
    """The command line with these nouns."""
    import typer
    from typer.core import TyperGroup

    from barnabas import __version__

    class Ordered(TyperGroup):
        """Typer lists single commands before those with sub-commands; a reader starts with `serve` and `topics`."""

        def list_commands(self, ctx: Any) -> list[str]:
            order = {noun: place for place, noun in enumerate(NOUNS)}
            return sorted(super().list_commands(ctx), key=lambda name: order.get(name, len(order)))

    app = typer.Typer(
        name="barnabas", help=HELP, no_args_is_help=True, rich_markup_mode="markdown", add_completion=False, cls=Ordered
    )

    for noun in nouns:
        if noun == "serve":
            _list_serve(app)
            continue
        module = import_module(f"barnabas.cli.{noun.replace('-', '_')}")
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
    """`serve` has a parser of its own (see there why), which `main` calls; here it takes its place among the nouns."""
    from barnabas.cli import serve

    app.command("serve", help=serve.SUMMARY)(lambda: serve.main(sys.argv[2:]))


def main() -> None:
    """The entry point. `barnabas NOUN ...` imports that noun alone."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked == "serve":
        from barnabas.cli.serve import main as serve

        serve(sys.argv[2:])
        return
    if asked == "--version":
        from barnabas import __version__

        sys.stdout.write(f"barnabas {__version__}\n")
        return
    try:
        build_app((asked,) if asked in NOUNS else NOUNS)()
    except ValueError as error:  # an argument that only the command itself could judge
        from barnabas.cli.output import EXIT_USAGE, fail

        fail(str(error), EXIT_USAGE)


if __name__ == "__main__":
    main()
