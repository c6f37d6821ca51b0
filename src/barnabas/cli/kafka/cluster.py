"""Shell: `kafka-cluster`: cluster-id and list-endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-cluster", "The cluster's id and its brokers.")
    parser.add_argument("action", choices=["cluster-id", "list-endpoints"])
    options = parser.parse_args()

    async def command(admin: AsyncAdmin) -> None:
        cluster = await admin.describe_cluster()
        if options.action == "cluster-id":
            emit(f"Cluster ID: {cluster.cluster_id}")
            return
        emit(f"{'ID':<10} {'HOST':<40} {'PORT':<10} {'RACK':<10} {'STATE':<10} ENDPOINT_TYPE")
        for b in cluster.brokers:
            emit(f"{b.broker_id:<10} {b.host:<40} {b.port:<10} {b.rack or 'null':<10} {'unfenced':<10} broker")

    run_admin(options.bootstrap_server, command, client_settings(options))
