"""Shell: `barnabas console`: runs the web console as a process of its own; `add-user` writes its users file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.options import Bootstrap, CommandConfig
from barnabas.cli.output import EXIT_USAGE, fail, note
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run, with_bootstrap

if TYPE_CHECKING:
    from barnabas.console.server import ConsoleServer

_HELP: Final = """Run the web console of a cluster, Barnabas' or Apache Kafka's.

Without a login, the console listens on a loopback address only.

Example: `barnabas console --bootstrap-server localhost:9092 --registry http://localhost:8081`
"""
app = typer.Typer(help=_HELP, invoke_without_command=True, rich_markup_mode="markdown")


@app.callback()
def console(
    context: typer.Context,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="URL", help="The schema registry, for pages and decoding.")
    ] = None,
    connect: Annotated[
        str | None, typer.Option("--connect", metavar="URL", help="The REST API of Connect, for its pages.")
    ] = None,
    pipelines: Annotated[bool, typer.Option("--pipelines", help="Pages of the pipelines of this machine.")] = False,
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="FILE", help="MirrorMaker's file, for the page of its lag.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; other than loopback it needs --users-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", help="The port; 0 takes any free port.")] = 8090,
    users_file: Annotated[
        Path | None, typer.Option("--users-file", metavar="FILE", help="Users with roles; turns the login on.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Serve https with this certificate (PEM).")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="The certificate's key (PEM).")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse every change, whatever the role.")] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="RULE",
            help="Hide a field from all but administrators: customers*:value.email=replace; repeatable.",
        ),
    ] = None,
    audit_file: Annotated[
        Path | None, typer.Option("--audit-file", metavar="FILE", help="Append each change as a line of JSON.")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    if context.invoked_subcommand is not None:
        return
    try:
        from barnabas.console.access.masking import MaskRule
        from barnabas.console.server import ConsoleServer
        from barnabas.console.settings import ConsoleSettings
    except ModuleNotFoundError as error:
        fail(f"The console needs {error.name}: pip install 'barnabas[console]'", EXIT_USAGE)
    from barnabas.cli.serve.console_readers import mirror_reader, pipeline_reader
    from barnabas.console.errors import ConsoleError
    from barnabas.core.addresses import is_loopback

    settings = ConsoleSettings(
        with_bootstrap(bootstrap_server, read_properties(command_config)),
        listener=f"http://{f'[{host}]' if ':' in host else host}:{port}",
        registry_url=registry,
        connect_url=connect,
        pipelines=pipeline_reader() if pipelines else None,
        mirror=mirror_reader(mirror) if mirror is not None else None,
        users_file=users_file,
        certificate=certificate,
        key=key,
        is_read_only=read_only,
        masks=tuple(MaskRule.parse(text) for text in mask or ()),
        audit_file=audit_file,
    )
    if users_file is not None and certificate is None and not is_loopback(host):
        note("WARNING: without --certificate, passwords and sessions cross the network in clear text.")

    async def main() -> None:
        try:
            server = ConsoleServer(settings)
        except ConsoleError as error:
            fail(str(error), EXIT_USAGE)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        await server.run(announce)

    with contextlib.suppress(KeyboardInterrupt):
        run(main)


def announce(server: ConsoleServer) -> None:
    """Print one line on stdout when the console is ready, for people and for programs that wait for the line."""
    print(f"barnabas console ready: {server.url}", flush=True)


@app.command("add-user")
def add_user(
    name: Annotated[str, typer.Argument(help="The user's name.", metavar="NAME")],
    users_file: Annotated[Path, typer.Option("--users-file", metavar="FILE", help="The file; created if missing.")],
    role: Annotated[str, typer.Option("--role", help="viewer, editor or admin.")] = "viewer",
) -> None:
    """Add a user to the console's users file, or change the user's role and password. Asks for the password.

    A script passes the password in the environment variable BARNABAS_CONSOLE_PASSWORD.

    Example: `barnabas console add-user alice --role editor --users-file console-users`
    """
    from barnabas.console.access.users import PASSWORD_CHARACTERS_MIN, Role, user_line
    from barnabas.protocol.security.password_hash import hash_password

    wanted = Role.parse(role)
    password = os.environ.get("BARNABAS_CONSOLE_PASSWORD") or typer.prompt(
        "Password", hide_input=True, confirmation_prompt=True, err=True
    )
    if len(password) < PASSWORD_CHARACTERS_MIN:
        fail(f"The password must have at least {PASSWORD_CHARACTERS_MIN} characters.", EXIT_USAGE)
    line = user_line(name, wanted, hash_password(password, os.urandom(16)))
    old = users_file.read_text(encoding="utf-8").splitlines() if users_file.exists() else []
    lines = [one for one in old if one.partition(":")[0] != name] + [line]
    fresh = users_file.with_name(users_file.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fresh.replace(users_file)
    note(f"{name} is {wanted.name.lower()} now; a running console knows it at once")
