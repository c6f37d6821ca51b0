"""Shell: `barnabas quotas`: what users, client ids and addresses may use: listing, setting and removing quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, Json, noun
from barnabas.cli.output import note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.protocol.security.quotas.limits import QuotaEntity

app = noun("Client quotas: bytes, request time and new partitions per user and client id.")

DEFAULT_NAME = "<default>"
User = Annotated[str | None, typer.Option(help="A user; <default> is every user without a quota of its own.")]
ClientId = Annotated[str | None, typer.Option("--client-id", help="A client id; <default> is every other one.")]
Address = Annotated[str | None, typer.Option("--ip", help="An IP address; <default> is every other one.")]


@app.command("list")
def list_quotas(
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List the quotas that are set, of all entities or of those with a user, client id or address.

    Example: `barnabas quotas list --user alice`
    """
    names = _names(user, client_id, ip)

    async def command(admin: AsyncAdmin) -> dict[QuotaEntity, dict[str, float]]:
        return await admin.describe_client_quotas(names)

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([{**dict(entity), "quotas": values} for entity, values in sorted(found.items(), key=_key)])
        return
    rows = [
        [*(_shown(dict(entity), kind) for kind in ("user", "client-id", "ip")), key, _number(value)]
        for entity, values in sorted(found.items(), key=_key)
        for key, value in sorted(values.items())
    ]
    print_table(["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"], rows, empty="no quotas are set")


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str],
        typer.Argument(
            help="producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, or for an "
            "address connection_creation_rate.",
            metavar="NAME=VALUE...",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    Example: `barnabas quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152`
    """
    _alter(_entity(user, client_id, ip), dict(map(_value, quotas)), bootstrap_server, command_config)


@app.command("remove")
def remove_quotas(
    quotas: Annotated[list[str], typer.Argument(help="The quotas to remove.", metavar="NAME...")],
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Remove quotas. The quota of the next level holds again, if there is one.

    Example: `barnabas quotas remove --user alice producer_byte_rate`
    """
    _alter(_entity(user, client_id, ip), dict.fromkeys(quotas), bootstrap_server, command_config)


def _alter(
    entity: dict[str, str | None], values: dict[str, float | None], bootstrap_server: str, command_config: str | None
) -> None:
    from barnabas.client.admin.quotas import entity_text, quota_entity

    key = quota_entity(entity)

    async def command(admin: AsyncAdmin) -> None:
        error = (await admin.alter_client_quotas({key: values}))[key]
        if error is not None:
            raise error

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"changed the quotas of {entity_text(key)}")


def _entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    names = _names(user, client_id, ip)
    if not names:
        raise ValueError("name an entity: --user, --client-id, both, or --ip; <default> is the default entity")
    return names


def _names(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    given = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: None if name == DEFAULT_NAME else name for kind, name in given.items() if name is not None}


def _value(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    try:
        if not equals:
            raise ValueError
        return name, float(value)
    except ValueError:
        raise ValueError(f"{text!r} is not NAME=VALUE with a number, for example producer_byte_rate=1048576") from None


def _shown(names: dict[str, str | None], kind: str) -> str:
    if kind not in names:
        return ""
    name = names[kind]
    return DEFAULT_NAME if name is None else name


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else str(value)


def _key(item: tuple[QuotaEntity, object]) -> list[tuple[str, str]]:
    return [(kind, name or "") for kind, name in item[0]]
