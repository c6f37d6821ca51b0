"""Shell: `barnabas cluster`: the commands of the noun; the APIs that each broker serves, and the controller quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.cli.cluster.controllers import add_controller, remove_controller
from barnabas.cli.cluster.describe import describe
from barnabas.cli.cluster.heal import heal
from barnabas.cli.cluster.init import certificates, init
from barnabas.cli.cluster.moves import drain, elect, moves, reassign
from barnabas.cli.cluster.rebalance import rebalance
from barnabas.cli.cluster.up import up
from barnabas.cli.options import Bootstrap, CommandConfig, Json, noun
from barnabas.cli.output import note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

QUORUM_TIMEOUT_MS: Final = 10_000
"""Brokers forward DescribeQuorum to the active controller, and wait for one."""

app = noun("The cluster: its brokers, its controllers, and the APIs that they serve.")
_COMMANDS = (
    init, up, certificates, describe, reassign, rebalance, drain, heal, moves, elect, add_controller, remove_controller,
)  # fmt: skip
for _command in _COMMANDS:
    app.command()(_command)


@app.command()
def apis(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """Show the APIs that the brokers serve, and their versions.

    Example: `barnabas cluster apis --json`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        return await served_apis(admin)

    rows = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(rows)
    else:
        table = [(r["broker"], r["key"], r["api"], f"{r['min']} to {r['max']}") for r in rows]
        print_table(["BROKER>", "KEY>", "API", "VERSIONS"], table)


async def served_apis(admin: AsyncAdmin) -> list[dict[str, Any]]:
    """One row for each broker and API."""
    from barnabas.protocol.wire.apis import ApiKey
    from barnabas.protocol.wire.messages.api_versions import ApiVersionsRequest

    names = {int(key): key for key in ApiKey}
    rows = []
    request = ApiVersionsRequest(client_software_name="barnabas-cli", client_software_version="1")
    for broker in (await admin.describe_cluster()).brokers:
        response = await admin.cluster.send(broker.broker_id, request)
        for api in sorted(response.api_keys, key=lambda a: a.api_key):
            name = names[api.api_key].name if api.api_key in names else f"UNKNOWN({api.api_key})"
            rows.append(
                {
                    "broker": broker.broker_id,
                    "host": broker.host,
                    "port": broker.port,
                    "key": api.api_key,
                    "api": "".join(part.capitalize() for part in name.split("_")),
                    "min": api.min_version,
                    "max": api.max_version,
                }
            )
    return rows


@app.command()
def quorum(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """Show the controller quorum: the leader, the voters, the observers, and the lag of each.

    Example: `barnabas cluster quorum`
    """

    from barnabas.client.errors import RequestTimeoutError

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        try:
            found = await admin.describe_quorum(timeout_ms=QUORUM_TIMEOUT_MS)
        except RequestTimeoutError as error:
            raise RequestTimeoutError(
                f"No active controller answered within {QUORUM_TIMEOUT_MS // 1_000} s, so that the quorum probably has"
                " no majority. The page /readyz of a node and its log name the controllers that do not answer."
            ) from error
        kinds = [("voter", r) for r in found.voters] + [("observer", r) for r in found.observers]
        return {
            "leader": found.leader_id,
            "epoch": found.leader_epoch,
            "high_watermark": found.high_watermark,
            "replicas": [
                {
                    "node": r.node_id,
                    "role": "leader" if r.node_id == found.leader_id else kind,
                    "end": r.log_end_offset,
                    "lag": found.lag(r),
                    "last_fetch_ms": r.last_fetch_ms,
                }
                for kind, r in kinds
            ],
        }

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
        return
    note(f"leader {found['leader']} in epoch {found['epoch']}; high watermark {found['high_watermark']}")
    rows = [
        (
            r["node"],
            r["role"],
            "unknown" if r["end"] < 0 else r["end"],
            "unknown" if r["lag"] is None else r["lag"],
        )
        for r in found["replicas"]
    ]
    print_table(["NODE>", "ROLE", "LOG END>", "LAG>"], rows)
    if any(r["end"] < 0 for r in found["replicas"]):
        note("unknown: the node has not fetched from this leader yet; it may be down")


@app.command()
def unregister(
    broker: Annotated[int, typer.Argument(help="The node id of a broker that will not be started again.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Remove the registration of a broker that will not be started again. Drain the broker first, or its replicas stay
    offline.

    Example: `barnabas cluster unregister 3`
    """

    async def command(admin: AsyncAdmin) -> None:
        await admin.unregister_broker(broker)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"broker {broker} is unregistered")
