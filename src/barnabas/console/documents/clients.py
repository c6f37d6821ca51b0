"""Shell: what clients use: bytes, requests, time of the event loop, by client id, address, principal or partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.clients import LEAST, ClientUse, ClientView
from barnabas.client.errors import UnsupportedApiError
from barnabas.console.documents.lists import page_of
from barnabas.console.errors import BadInputError
from barnabas.console.sources import Call


@dataclass(frozen=True, slots=True)
class _Tab:
    """A view of clients: the amounts that it shows, the most important one first."""

    view: ClientView
    text: str
    head: str
    amounts: tuple[str, ...]


_OF_CLIENTS: Final = ("seconds", "requests", "bytes_in", "bytes_out", "records_in")
_TABS: Final = {
    "client": _Tab(ClientView.CLIENT_ID, "Client ids", "Client id", _OF_CLIENTS),
    "address": _Tab(ClientView.ADDRESS, "Addresses", "Address", _OF_CLIENTS),
    "principal": _Tab(ClientView.PRINCIPAL, "Principals", "Principal", _OF_CLIENTS),
    "partition": _Tab(ClientView.PARTITION, "Partitions", "Partition", ("bytes_in", "records_in", "bytes_out")),
    "producer": _Tab(ClientView.PARTITION_CLIENT, "Producers", "Client id", ("bytes_in", "records_in")),
    "consumer": _Tab(ClientView.PARTITION_CLIENT, "Consumers", "Client id", ("bytes_out",)),
}


async def client_list(call: Call) -> dict[str, Any]:
    """The rows of one view (`by`), with rates over about the last ten seconds, all brokers together."""
    by = call.query.get("by") or "client"
    tab = _TABS.get(by)
    if tab is None:
        raise BadInputError(f"by is one of {', '.join(_TABS)}.")
    query = {"sort": f"-{tab.amounts[0]}", **{key: value for key, value in call.query.items() if value}}
    sorts = {name: (lambda row, name=name: row[name]) for name in ("name", *tab.amounts)}
    document: dict[str, Any] = {
        "by": by,
        "tabs": [(name, known.text) for name, known in _TABS.items()],
        "head": tab.head,
        "amounts": tab.amounts,
        "is_by_partition": tab.view is ClientView.PARTITION_CLIENT,
        "problem": "",
        "others": None,
        "failed": {},
    }
    try:
        found = await call.admin.describe_clients(tab.view, timeout_ms=10_000)
    except UnsupportedApiError as error:
        problem = f"What clients use is known by Barnabas brokers only: {error}"
        return {**document, "problem": problem, **page_of([], query, name="name", sorts=sorts)}
    rows = [_row(use) for use in found.clients]
    if tab.view is ClientView.PARTITION_CLIENT:
        rows = [row for row in rows if max(row[amount] for amount in tab.amounts) >= LEAST]
    others = _row(found.others)
    return {
        **document,
        **page_of(rows, query, name="name", sorts=sorts),
        "others": others if any(others[amount] >= LEAST for amount in tab.amounts) else None,
        "failed": {str(broker_id): str(error) for broker_id, error in sorted(found.failed.items())},
    }


def _row(use: ClientUse) -> dict[str, Any]:
    partition = None if use.topic is None else f"{use.topic}-{use.partition}"
    return {
        "name": use.client_id or use.address or use.principal or partition or "",
        "client_id": use.client_id,
        "address": use.address,
        "principal": use.principal,
        "topic": use.topic,
        "partition": partition,
        "producer_id": use.producer_id,
        "bytes_in": use.bytes_in,
        "bytes_out": use.bytes_out,
        "requests": use.requests,
        "seconds": use.seconds,
        "records_in": use.records_in,
    }
