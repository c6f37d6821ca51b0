"""Shell: `kafka-cluster`: the commands cluster-id, list-endpoints, api-versions and unregister."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.kafka.cluster.broker_api_versions import print_api_versions
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError, error_code

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-cluster", "The cluster's id and its brokers.", bootstrap=False)
    parser.add_argument("action", choices=["cluster-id", "unregister", "list-endpoints", "api-versions"])
    parser.add_argument("--id", "-i", type=int, help="with unregister: the broker")
    parser.add_argument("--include-fenced-brokers", action="store_true", help="with list-endpoints")
    config_flags = ("--command-config", "-c", "--config")
    parser.add_argument("--bootstrap-server", "-b", required=True, metavar="HOST:PORT")
    parser.add_argument(*config_flags, dest="command_config", metavar="FILE", help="a .properties file")
    parser.refuse("--bootstrap-controller", "-C", why="use --bootstrap-server with the address of a broker")
    options = parser.parse_args()
    if options.action == "unregister" and options.id is None:
        parser.error("unregister needs --id")

    async def command(admin: AsyncAdmin) -> None:
        if options.action == "unregister":
            await unregister(admin, options.id)
            return
        if options.action == "api-versions":
            await print_api_versions(admin)
            return
        cluster = await admin.describe_cluster(include_fenced_brokers=options.include_fenced_brokers)
        if options.action == "cluster-id":
            emit(f"Cluster ID: {cluster.cluster_id}")
            return
        host = max(8, *(len(b.host) for b in cluster.brokers))
        rack = max(10, *(len(b.rack or "") for b in cluster.brokers))
        form = f"%-10s %-{host + 1}s%-10s %-{rack}s %-10s %-15s"
        emit(form % ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"))
        for b in cluster.brokers:
            state = "fenced" if b.broker_id in cluster.fenced else "unfenced"
            emit(form % (b.broker_id, b.host, b.port, b.rack or "null", state, "broker"))

    run_admin(options.bootstrap_server, command, client_settings(options))


async def unregister(admin: AsyncAdmin, broker_id: int) -> None:
    """Remove the registration of a broker that will not be started again."""
    from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest

    response = await admin.cluster.send_any(UnregisterBrokerRequest(broker_id=broker_id))
    if response.error_code:
        raise KafkaError(error_code(response.error_code), response.error_message)
    emit(f"Broker {broker_id} is no longer registered.")
