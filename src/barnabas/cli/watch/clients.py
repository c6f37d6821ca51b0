"""Shell: `barnabas clients`: which clients keep the brokers busy."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, emit, fail, note, print_json, print_table, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.clients import ClientUse, ClientUses


class By(StrEnum):
    """What a row stands for."""

    CLIENT = "client"
    ADDRESS = "address"
    PRINCIPAL = "principal"
    PARTITION = "partition"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Sort(StrEnum):
    """By what the rows are sorted, the largest first."""

    COST = "cost"
    IN = "in"
    OUT = "out"
    REQUESTS = "requests"
    RECORDS = "records"
    NAME = "name"


_AMOUNTS: Final[dict[Sort, Callable[[ClientUse], float]]] = {
    Sort.COST: lambda use: use.seconds,
    Sort.IN: lambda use: use.bytes_in,
    Sort.OUT: lambda use: use.bytes_out,
    Sort.REQUESTS: lambda use: use.requests,
    Sort.RECORDS: lambda use: use.records_in,
}
_CLIENT: Final = (Sort.COST, Sort.REQUESTS, Sort.IN, Sort.OUT, Sort.RECORDS)
AMOUNTS_OF: Final[dict[By, tuple[Sort, ...]]] = {
    By.CLIENT: _CLIENT,
    By.ADDRESS: _CLIENT,
    By.PRINCIPAL: _CLIENT,
    By.PARTITION: (Sort.IN, Sort.RECORDS, Sort.OUT),
    By.PRODUCER: (Sort.IN, Sort.RECORDS),
    By.CONSUMER: (Sort.OUT,),
}
"""The columns of amounts. Rows are sorted by the first one unless the user says otherwise."""
_HEADS: Final[dict[Sort, str]] = {
    Sort.COST: "COST>",
    Sort.REQUESTS: "REQUESTS/S>",
    Sort.IN: "IN/S>",
    Sort.OUT: "OUT/S>",
    Sort.RECORDS: "RECORDS/S>",
}
_WHO: Final = ["CLIENT ID", "ADDRESS", "PRINCIPAL", "PARTITION"]
_NAMES_OF: Final[dict[By, list[str]]] = {
    By.CLIENT: ["CLIENT ID"],
    By.ADDRESS: ["ADDRESS"],
    By.PRINCIPAL: ["PRINCIPAL"],
    By.PARTITION: ["PARTITION"],
    By.PRODUCER: [*_WHO, "PRODUCER ID"],
    By.CONSUMER: _WHO,
}
_JSON_WHO: Final = ("client_id", "address", "principal", "topic", "partition")
_JSON_NAMES_OF: Final[dict[By, tuple[str, ...]]] = {
    By.CLIENT: ("client_id",),
    By.ADDRESS: ("address",),
    By.PRINCIPAL: ("principal",),
    By.PARTITION: ("topic", "partition"),
    By.PRODUCER: (*_JSON_WHO, "producer_id"),
    By.CONSUMER: _JSON_WHO,
}
_JSON_AMOUNTS: Final = ("bytes_in", "bytes_out", "requests", "seconds", "records_in")


def clients(
    by: Annotated[By, typer.Option("--by", "-b", help="What a row stands for.")] = By.CLIENT,
    sort: Annotated[Sort | None, typer.Option("--sort", "-s", help="What comes first.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Rows at most.")] = 20,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print the table again and again.")] = False,
    interval: Annotated[float, typer.Option("--interval", "-i", min=0.5, help="Seconds between two tables.")] = 2.0,
    json: Json = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Find the clients that keep the brokers busy: their bytes, requests and cost per second, over all brokers.

    COST is the share of the brokers' event loops that the requests take: 100% is one whole broker. Rates are averages
    over about the last ten seconds. Needs Describe on the cluster, and Barnabas brokers.

    Example: `barnabas clients --by address --sort out`
    """
    if json and watch:
        fail("--watch does not end, and so has no JSON document: leave --json out", EXIT_USAGE)
    order = sort or AMOUNTS_OF[by][0]

    async def command(admin: AsyncAdmin) -> bool:
        from barnabas.client.admin.clients import ClientView

        view = {
            By.CLIENT: ClientView.CLIENT_ID, By.ADDRESS: ClientView.ADDRESS, By.PRINCIPAL: ClientView.PRINCIPAL,
            By.PARTITION: ClientView.PARTITION, By.PRODUCER: ClientView.PARTITION_CLIENT,
            By.CONSUMER: ClientView.PARTITION_CLIENT,
        }[by]  # fmt: skip
        while True:
            found = await admin.describe_clients(view)
            if watch and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")
            rows = select(found, by, order)
            if json:
                print_json(_document(found, rows[:limit], by))
            else:
                show(found, rows, by, limit)
            for broker_id, error in sorted(found.failed.items()):
                note(f"broker {broker_id} did not answer, and its share is missing: {error}")
            if not watch:
                return not found.failed
            await asyncio.sleep(interval)

    if not run_admin(bootstrap_server, command, read_properties(command_config)):
        raise SystemExit(EXIT_FAILED)


def select(found: ClientUses, by: By, order: Sort) -> list[ClientUse]:
    """The rows to show, sorted."""
    rows = list(found.clients)
    from barnabas.client.admin.clients import LEAST

    if by is By.PRODUCER:
        rows = [use for use in rows if max(use.bytes_in, use.records_in) >= LEAST]
    elif by is By.CONSUMER:
        rows = [use for use in rows if use.bytes_out >= LEAST]
    if order is Sort.NAME:
        return sorted(rows, key=lambda use: [str(part) for part in use.name])
    return sorted(rows, key=lambda use: -_AMOUNTS[order](use))


def show(found: ClientUses, rows: Sequence[ClientUse], by: By, limit: int) -> None:
    """Print the first rows, and what all others use together."""
    from barnabas.client.admin.clients import LEAST

    columns = AMOUNTS_OF[by]
    table = [[*_names(use, by), *(_cell(use, column) for column in columns)] for use in rows[:limit]]
    if any(_AMOUNTS[column](found.others) >= LEAST for column in columns):
        blanks = [""] * (len(_NAMES_OF[by]) - 1)
        table.append(["(all others)", *blanks, *(_cell(found.others, column) for column in columns)])
    print_table([*_NAMES_OF[by], *(_HEADS[column] for column in columns)], table, empty="no clients in the last minute")
    if len(rows) > limit:
        emit(f"and {len(rows) - limit:,} more: --limit {len(rows)} shows all")


def _names(use: ClientUse, by: By) -> list[str]:
    partition = f"{use.topic}-{use.partition}"
    who = [use.client_id or "", use.address or "", use.principal or "", partition]
    match by:
        case By.PARTITION:
            return [partition]
        case By.CONSUMER:
            return who
        case By.PRODUCER:
            return [*who, "-" if use.producer_id < 0 else str(use.producer_id)]
        case _:
            return [use.client_id or use.address or use.principal or ""]


def _cell(use: ClientUse, column: Sort) -> str:
    amount = _AMOUNTS[column](use)
    match column:
        case Sort.COST:
            return f"{amount * 100:.1f}%"
        case Sort.IN | Sort.OUT:
            return size_text(round(amount))
        case _:
            return f"{amount:,.1f}" if amount < 100 else f"{amount:,.0f}"


def _document(found: ClientUses, rows: Sequence[ClientUse], by: By) -> dict[str, Any]:
    return {
        "clients": [
            {**{name: getattr(use, name) for name in _JSON_NAMES_OF[by]}, **_json_amounts(use)} for use in rows
        ],
        "others": _json_amounts(found.others),
        "failed": {str(broker_id): str(error) for broker_id, error in sorted(found.failed.items())},
    }


def _json_amounts(use: ClientUse) -> dict[str, float]:
    return {name: round(getattr(use, name), 6) for name in _JSON_AMOUNTS}
