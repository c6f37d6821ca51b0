"""Shell: `kafka-broker-api-versions`: prints the APIs that each broker serves."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from barnabas.cli.cluster.cluster import served_apis
from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.protocol.wire.apis import APIS

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-broker-api-versions", "Retrieve the API versions of every broker.")
    options = parser.parse_args()
    run_admin(options.bootstrap_server, print_api_versions, client_settings(options))


async def print_api_versions(admin: AsyncAdmin) -> None:
    """Print the APIs and versions of each broker."""
    for (host, port, broker), apis in groupby(
        await served_apis(admin), key=lambda r: (r["host"], r["port"], r["broker"])
    ):
        emit(f"{host}:{port} (id: {broker} rack: null isFenced: false) -> (")
        emit(",\n".join(_line(api) for api in apis) + "\n)")


def _line(api: dict[str, Any]) -> str:
    versions = f"{api['min']} to {api['max']}" if api["min"] < api["max"] else str(api["min"])
    usable = api["max"]
    if (known := APIS.get(api["key"])) is not None:
        usable = min(api["max"], known.max_version)
    return f"\t{api['api']}({api['key']}): {versions} [usable: {usable}]"
