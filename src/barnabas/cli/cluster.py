"""Shell: `barnabas cluster`: brokers, controller, and the APIs that each broker serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.cli.cluster_up import up
from barnabas.cli.options import Bootstrap, CommandConfig, Json, noun
from barnabas.cli.output import note, print_json, print_table, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

app = noun("The cluster: its brokers, its controller, and what they can do.")
app.command()(up)


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
        "brokers": brokers,
    }


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
