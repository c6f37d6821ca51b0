"""Shell: `barnabas cluster describe`: the brokers with their log sizes, the active controller, and unhealthy
partitions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import note, print_json, print_table, size_text
from barnabas.cli.session import ANSWER_TIMEOUT_MS, DEFAULT_BOOTSTRAP, answer_of, read_properties, run_admin
from barnabas.client.explanations.words import counted

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.cluster.metadata import BrokerAddress

_SHOWN_MAX: Final = 50


def describe(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """Show the cluster id, the brokers, the size of their logs, and the partitions that are offline or
    under-replicated.

    A broker that has died stays in the list, marked as not answering, until it is unregistered.

    Example: `barnabas cluster describe`
    """

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        return await describe_cluster(admin)

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
        return
    controller = "unknown" if found["controller"] < 0 else found["controller"]
    note(
        f"cluster {found['cluster_id']}: {counted(len(found['brokers']), 'broker')}, controller {controller}, "
        f"{counted(found['topics'], 'topic')}, {counted(found['partitions'], 'partition')}, "
        f"{found['under_replicated']} under-replicated, {found['offline']} offline"
    )
    rows = [
        (b["id"], f"{b['host']}:{b['port']}", b["rack"], b["replicas"], size_text(b["bytes"]), _dirs(b))
        if b["answers"]
        else (b["id"], f"{b['host']}:{b['port']}", b["rack"], "-", "-", _unavailable_reason(b))
        for b in found["brokers"]
    ]
    print_table(["BROKER>", "ADDRESS", "RACK", "REPLICAS>", "SIZE>", "LOG DIRS"], rows)
    if found["in_trouble"]:
        trouble = [(p["partition"], p["trouble"], p["leader"], p["isr"], p["missing"]) for p in found["in_trouble"]]
        print_table(["PARTITION", "TROUBLE", "LEADER>", "IN SYNC", "NOT IN SYNC"], trouble[:_SHOWN_MAX])
        if len(trouble) > _SHOWN_MAX:
            note(f"and {len(trouble) - _SHOWN_MAX} more; --json shows all")


def _unavailable_reason(broker: dict[str, Any]) -> str:
    return "fenced: it has no session with the controller" if broker["fenced"] else "it does not answer"


def _dirs(broker: dict[str, Any]) -> list[str]:
    return [f"{path} (offline)" if path in broker["offline_dirs"] else path for path in broker["dirs"]]


async def describe_cluster(admin: AsyncAdmin) -> dict[str, Any]:
    """The brokers with their replicas and log sizes, and the partitions that are offline or under-replicated."""
    from barnabas.core.errors import KafkaError

    cluster = await admin.describe_cluster(include_fenced_brokers=True)
    names = [t.name for t in await admin.list_topics(include_internal=True)]
    views = [v for v in (await admin.describe_topics(names)).values() if not isinstance(v, KafkaError)]
    partitions = [p for view in views for p in view.partitions]
    controller, *brokers = await asyncio.gather(
        _active_controller(admin),
        *(_describe_broker(admin, b, fenced=b.broker_id in cluster.fenced) for b in cluster.brokers),
    )
    return {
        "cluster_id": cluster.cluster_id,
        "controller": controller,
        "topics": len(views),
        "partitions": len(partitions),
        "under_replicated": sum(len(p.isr) < len(p.replicas) for p in partitions),
        "offline": sum(p.leader < 0 for p in partitions),
        "in_trouble": _in_trouble(views),
        "brokers": brokers,
    }


async def _describe_broker(admin: AsyncAdmin, broker: BrokerAddress, *, fenced: bool) -> dict[str, Any]:
    from barnabas.core.errors import KafkaError

    answer = None
    if not fenced:  # clients cannot reach a fenced broker: the metadata does not have it
        answer = await answer_of(admin.describe_log_dirs([broker.broker_id], timeout_ms=ANSWER_TIMEOUT_MS))
    found = {} if answer is None else answer[broker.broker_id]
    usable = {path: d for path, d in found.items() if not isinstance(d, KafkaError)}
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "answers": answer is not None,
        "fenced": fenced,
        "replicas": sum(len(d.replicas) for d in usable.values()),
        "bytes": sum(r.size_bytes for d in usable.values() for r in d.replicas.values()),
        "dirs": sorted(found),
        "offline_dirs": sorted(set(found) - set(usable)),
    }


async def _active_controller(admin: AsyncAdmin) -> int:
    """The node id of the active controller, from DescribeQuorum; -1 if there is none or the cluster uses ZooKeeper.

    The controller that DescribeCluster names cannot be used: as in Kafka, that is any broker to which clients may send
    their requests.
    """
    from barnabas.core.errors import KafkaError

    try:
        return (await admin.describe_quorum(timeout_ms=ANSWER_TIMEOUT_MS)).leader_id
    except KafkaError:  # includes the errors that the client raises itself
        return -1


def _in_trouble(views: list[Any]) -> list[dict[str, Any]]:
    """The partitions without a leader, or with replicas that are not in sync."""
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
