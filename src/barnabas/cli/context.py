"""Shell: `barnabas context`: the clusters of a user, by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.completing import contexts as complete_contexts
from barnabas.cli.options import Json, Yes, noun
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json, print_table
from barnabas.cli.session import parse_settings, read_properties

app = noun(
    "Contexts: the clusters that you use, each with a name, its addresses, and the settings to connect to it.\n\n"
    "Commands use the current context unless they are given `--bootstrap-server`. `barnabas --context NAME ...` and "
    "the environment variable `BARNABAS_CONTEXT` choose another one."
)

Name = Annotated[str, typer.Argument(help="The name of the context.", metavar="NAME", autocompletion=complete_contexts)]
_REGISTRY = "schema.registry.url"


@app.command("list")
def list_contexts(json: Json = False) -> None:
    """List the contexts. `*` marks the one that commands use.

    Example: `barnabas context list`
    """
    from barnabas.cli.contexts import Contexts

    contexts = Contexts()
    current = contexts.current
    rows = []
    for name in contexts.names:
        settings = contexts.read(name)
        rows.append({
            "context": name, "current": name == current, "bootstrap_servers": settings.get("bootstrap.servers"),
            "registry": settings.get(_REGISTRY), "security_protocol": settings.get("security.protocol", "PLAINTEXT"),
        })  # fmt: skip
    if json:
        print_json(rows)
        return
    print_table(
        ["", "CONTEXT", "BROKERS", "REGISTRY", "SECURITY"],
        [("*" if r["current"] else "", r["context"], r["bootstrap_servers"], r["registry"], r["security_protocol"])
         for r in rows],
        empty="no contexts",
    )  # fmt: skip
    if os.environ.get("BARNABAS_BOOTSTRAP"):
        note("note: BARNABAS_BOOTSTRAP is set, so that commands use its addresses and no context")


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(help="Default: the current context.", metavar="NAME", autocompletion=complete_contexts),
    ] = None,
    json: Json = False,
) -> None:
    """Show the settings of a context, without its secrets.

    Example: `barnabas context show prod`
    """
    from barnabas.cli.contexts import Contexts, masked

    contexts = Contexts()
    chosen = name or contexts.current
    if chosen is None:
        fail("No context is in use. `barnabas context list` lists them, `barnabas context use NAME` chooses one.")
    settings = masked(contexts.read(chosen))
    if json:
        print_json({"context": chosen, "current": chosen == contexts.current, "settings": settings})
    else:
        print_table(["SETTING", "VALUE"], settings.items(), title=f"context {chosen}")


@app.command("set")
def set_context(
    name: Name,
    bootstrap_server: Annotated[
        str | None,
        typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="The brokers to connect to first."),
    ] = None,
    registry: Annotated[str | None, typer.Option("--registry", metavar="URL", help="The schema registry.")] = None,
    command_config: Annotated[
        str | None,
        typer.Option("--command-config", metavar="FILE", help="Copy the settings of this .properties file."),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--setting", "-X", help="Client setting name=value; empty removes it.")
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Let commands use this context from now on.")] = False,
) -> None:
    """Create a context, or change the given settings of an existing one. The first context is used at once.

    Example: `barnabas context set prod -b kafka1:9093 --command-config prod.properties --registry https://schemas:8081`
    """
    from barnabas.cli.contexts import Contexts, with_absolute_paths

    contexts = Contexts()
    known = name in contexts.names
    settings = contexts.read(name) if known else {}
    if command_config is not None:
        given = {key: str(value) for key, value in read_properties(command_config).items()}
        settings.update(with_absolute_paths(given, Path(command_config).parent))
    if bootstrap_server is not None:
        settings["bootstrap.servers"] = bootstrap_server
    if registry is not None:
        settings[_REGISTRY] = registry
    settings.update(with_absolute_paths(parse_settings(setting), Path()))
    settings = {key: value for key, value in settings.items() if value}
    if "bootstrap.servers" not in settings:
        fail(f"the context {name} has no brokers: give --bootstrap-server HOST:PORT", EXIT_USAGE)
    is_first = not contexts.names
    contexts.write(name, settings)
    note(f"{'changed' if known else 'created'} context {name}: {settings['bootstrap.servers']}")
    if use or is_first:
        contexts.use(name)
        note(f"commands use {name} now")


@app.command()
def use(
    name: Annotated[
        str | None, typer.Argument(help="The context.", metavar="NAME", autocompletion=complete_contexts)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context.")] = False,
) -> None:
    """Let commands use this context from now on.

    Example: `barnabas context use prod`
    """
    from barnabas.cli.contexts import VARIABLE, Contexts

    if (name is None) is not none:
        fail("give the NAME of a context, or --none", EXIT_USAGE)
    contexts = Contexts()
    contexts.use(name)
    if name is None:
        note("commands use no context")
    else:
        note(f"commands use {name}: {contexts.read(name).get('bootstrap.servers')}")
    if os.environ.get(VARIABLE):
        note(f"note: {VARIABLE} is set and precedes this choice in the present shell")


@app.command()
def delete(name: Name, yes: Yes = False) -> None:
    """Delete a context. The cluster is not changed.

    Example: `barnabas context delete prod --yes`
    """
    from barnabas.cli.contexts import Contexts

    contexts = Contexts()
    contexts.read(name)
    confirm(yes, f"delete the context {name} and its settings?")
    contexts.delete(name)
    note(f"deleted context {name}")
