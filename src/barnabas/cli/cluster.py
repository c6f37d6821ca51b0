"""Shell: `barnabas cluster`: brokers, controller, and the APIs that each broker serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.cluster_controllers import add_controller, remove_controller
from barnabas.cli.cluster_moves import drain, elect, moves, reassign
from barnabas.cli.cluster_up import up
from barnabas.cli.options import Bootstrap, CommandConfig, Json, noun
from barnabas.cli.output import note, print_json, print_table, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

_SHOWN_MAX = 50

app = noun("The cluster: its brokers, its controller, and what they can do.")
for _command in (up, reassign, drain, moves, elect, add_controller, remove_controller):
    app.command()(_command)


@app.command()
def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """Show the cluster id, the brokers, how much they hold, and partitions that are not in order.

    Example: `barnabas cluster describe`
    """

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        return await describe_cluster(admin)

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
        return
    note(
        f"cluster {found['cluster_id']}: {len(found['brokers'])} broker(s), controller {found['controller']}, "
        f"{found['topics']} topic(s), {found['partitions']} partition(s), "
        f"{found['under_replicated']} under-replicated, {found['offline']} offline"
    )
    rows = [
        (b["id"], f"{b['host']}:{b['port']}", b["rack"], b["replicas"], size_text(b["bytes"]), b["dirs"])
        for b in found["brokers"]
    ]
    print_table(["BROKER>", "ADDRESS", "RACK", "REPLICAS>", "SIZE>", "LOG DIRS"], rows)
    if found["in_trouble"]:
        trouble = [(p["partition"], p["trouble"], p["leader"], p["isr"], p["missing"]) for p in found["in_trouble"]]
        print_table(["PARTITION", "TROUBLE", "LEADER>", "IN SYNC", "NOT IN SYNC"], trouble[:_SHOWN_MAX])
        if len(trouble) > _SHOWN_MAX:
            note(f"and {len(trouble) - _SHOWN_MAX} more; --json shows all")


async def describe_cluster(admin: AsyncAdmin) -> dict[str, Any]:
    """Brokers with their replicas and bytes, and counts of what needs looking at."""
    from barnabas.core.errors import KafkaError

    cluster = await admin.describe_cluster()
    names = [t.name for t in await admin.list_topics(include_internal=True)]
    views = [v for v in (await admin.describe_topics(names)).values() if not isinstance(v, KafkaError)]
    partitions = [p for view in views for p in view.partitions]
    dirs = await admin.describe_log_dirs()
    brokers = []
    for broker in cluster.brokers:
        found = dirs.get(broker.broker_id, {})
        usable = {path: d for path, d in found.items() if not isinstance(d, KafkaError)}
        brokers.append(
            {
                "id": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "replicas": sum(len(d.replicas) for d in usable.values()),
                "bytes": sum(r.size_bytes for d in usable.values() for r in d.replicas.values()),
                "dirs": sorted(found),
                "offline_dirs": sorted(set(found) - set(usable)),
            }
        )
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "topics": len(views),
        "partitions": len(partitions),
        "under_replicated": sum(len(p.isr) < len(p.replicas) for p in partitions),
        "offline": sum(p.leader < 0 for p in partitions),
        "in_trouble": _in_trouble(views),
        "brokers": brokers,
    }


def _in_trouble(views: list[Any]) -> list[dict[str, Any]]:
    """Partitions without a leader, or with replicas that are not in sync."""
    return [
        {
            "partition": f"{view.name}-{index}",
            "trouble": "offline" if p.leader < 0 else "under-replicated",
            "leader": p.leader,
            "isr": sorted(p.isr),
            "missing": sorted(set(p.replicas) - set(p.isr)),
        }
        for view in sorted(views, key=lambda view: str(view.name))
        for index, p in enumerate(view.partitions)
        if p.leader < 0 or len(p.isr) < len(p.replicas)
    ]


@app.command()
def apis(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """Show which APIs the brokers serve, and in which versions.

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
    """A row for each broker and API."""
    from barnabas.wire.apis import ApiKey
    from barnabas.wire.messages.api_versions import ApiVersionsRequest

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
    """Show the controllers: who leads, who votes, who only follows, and how far behind each is.

    Example: `barnabas cluster quorum`
    """

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        found = await admin.describe_quorum()
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
    note(f"leader {found['leader']} in epoch {found['epoch']}; committed up to {found['high_watermark']}")
    rows = [(r["node"], r["role"], r["end"], r["lag"]) for r in found["replicas"]]
    print_table(["NODE>", "ROLE", "LOG END>", "LAG>"], rows)


@app.command()
def unregister(
    broker: Annotated[int, typer.Argument(help="A broker that will not come back.")],
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Forget a broker that will not come back. Drain it first, or its replicas are missed for ever.

    Example: `barnabas cluster unregister 3`
    """

    async def command(admin: AsyncAdmin) -> None:
        await admin.unregister_broker(broker)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"broker {broker} is forgotten")
