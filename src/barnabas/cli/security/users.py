"""Shell: `barnabas users`: users with SCRAM passwords: listing, setting and removing them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, Json, Yes, noun
from barnabas.cli.output import confirm, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.protocol.security.credentials import SCRAM_ITERATIONS_MIN, SCRAM_MECHANISMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.users import ScramAlteration

app = noun(
    "Users with passwords (SCRAM). The cluster stores keys that are derived from a password, never the password."
)

User = Annotated[str, typer.Argument(help="The name of the user.", metavar="USER")]
Mechanism = Annotated[
    list[str] | None, typer.Option(help="SCRAM-SHA-256 or SCRAM-SHA-512; repeatable. Default: both.", metavar="NAME")
]


@app.command("list")
def list_users(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """List the users that have a password, with their mechanisms.

    Example: `barnabas users list`
    """

    async def command(admin: AsyncAdmin) -> dict[str, Mapping[str, int]]:
        found = await admin.describe_user_scram_credentials()
        return {user: known for user, known in found.items() if not isinstance(known, Exception)}

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([{"user": user, "iterations": dict(known)} for user, known in sorted(found.items())])
    else:
        rows = [(user, name, count) for user, known in sorted(found.items()) for name, count in known.items()]
        print_table(["USER", "MECHANISM", "ITERATIONS"], rows, empty="no users with passwords")


@app.command("set")
def set_password(
    user: User,
    mechanism: Mechanism = None,
    iterations: Annotated[int, typer.Option(help="From 4096 to 16384.", metavar="N")] = SCRAM_ITERATIONS_MIN,
    password_file: Annotated[
        str | None,
        typer.Option(help="A file with the password in its first line; - is standard input.", metavar="FILE"),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Create a user, or change the password. The password is asked for on the terminal, or read from a file.

    Example: `barnabas users set alice --password-file alice.txt`
    """
    from barnabas.client.admin.users import UserScramCredentialUpsertion

    password = _password(password_file)
    alterations: list[ScramAlteration] = [
        UserScramCredentialUpsertion(user, name, password, iterations) for name in _mechanisms(mechanism)
    ]
    _alter(user, alterations, bootstrap_server, command_config)
    note(f"the password of {user} is set for {', '.join(_mechanisms(mechanism))}")


@app.command()
def delete(
    user: User,
    mechanism: Mechanism = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    command_config: CommandConfig = None,
) -> None:
    """Remove the passwords of a user, for all mechanisms or for some. Open connections of the user stay open.

    Example: `barnabas users delete alice --yes`
    """
    from barnabas.client.admin.users import UserScramCredentialDeletion

    properties = read_properties(command_config)

    async def known(admin: AsyncAdmin) -> Mapping[str, int]:
        found = (await admin.describe_user_scram_credentials([user]))[user]
        if isinstance(found, Exception):
            raise found
        return found

    names = _mechanisms(mechanism) if mechanism else list(run_admin(bootstrap_server, known, properties))
    confirm(yes, f"Remove the passwords of {user} for {', '.join(names)}?")
    _alter(user, [UserScramCredentialDeletion(user, name) for name in names], bootstrap_server, command_config)
    note(f"the passwords of {user} are removed")


def _alter(user: str, alterations: list[ScramAlteration], bootstrap_server: str, command_config: str | None) -> None:
    async def command(admin: AsyncAdmin) -> None:
        error = (await admin.alter_user_scram_credentials(alterations))[user]
        if error is not None:
            raise error

    run_admin(bootstrap_server, command, read_properties(command_config))


def _mechanisms(given: list[str] | None) -> list[str]:
    names = [name.upper() for name in given or SCRAM_MECHANISMS]
    for name in names:
        if name not in SCRAM_MECHANISMS:
            fail(f"--mechanism {name} is unknown; use {' or '.join(SCRAM_MECHANISMS)}")
    return list(dict.fromkeys(names))


def _password(path: str | None) -> str:
    if path is None:
        if not sys.stdin.isatty():
            fail("a password is needed: use --password-file FILE, or --password-file - for standard input")
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        return password
    try:
        text = sys.stdin.readline() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        fail(f"the password file {path} cannot be read: {error.strerror}")
    password = text.splitlines()[0] if text.splitlines() else ""
    if not password:
        fail(f"the password file {path} is empty")
    return password
