"""Shell: `kafka-broker-api-versions`: which APIs each broker serves."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from barnabas.cli.cluster import served_apis
from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-broker-api-versions", "Retrieve the API versions of every broker.")
    options = parser.parse_args()

    async def command(admin: AsyncAdmin) -> None:
        for (host, port, broker), apis in groupby(
            await served_apis(admin), key=lambda r: (r["host"], r["port"], r["broker"])
        ):
            emit(f"{host}:{port} (id: {broker} rack: null isFenced: false) -> (")
            lines = [f"\t{a['api']}({a['key']}): {a['min']} to {a['max']} [usable: {a['max']}]" for a in apis]
            emit(",\n".join(lines) + "\n)")

    run_admin(options.bootstrap_server, command, client_settings(options))
