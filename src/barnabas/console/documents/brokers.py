"""Shell: brokers with their disks, one broker, the quorum, and the moves of replicas that are under way."""

from __future__ import annotations

from typing import Any

from barnabas.client.values import ConfigResource, LogDirDescription
from barnabas.console.documents.topics import config_rows
from barnabas.console.errors import BadInputError, NotFoundError
from barnabas.console.sampling.charts import draw
from barnabas.console.sources import Call
from barnabas.console.units import size
from barnabas.core.errors import BarnabasError, KafkaError


async def broker_list(call: Call) -> dict[str, Any]:
    """All brokers, down ones too, with leaders, replicas and disks at the last sample."""
    sample = call.sources.sampler.sample
    cluster = await call.admin.describe_cluster(include_fenced_brokers=True)
    leaders: dict[int, int] = {}
    for view in sample.topics.values():
        for partition in view.partitions:
            leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
    rows = []
    for broker in cluster.brokers:
        directories = sample.log_dirs.get(broker.broker_id, {})
        known = [d for d in directories.values() if isinstance(d, LogDirDescription)]
        rows.append(
            {
                "id": broker.broker_id,
                "address": f"{broker.host}:{broker.port}",
                "rack": broker.rack,
                "fenced": broker.broker_id in cluster.fenced,
                "answers": bool(directories),
                "leaders": leaders.get(broker.broker_id, 0),
                "replicas": sum(len(d.replicas) for d in known),
                "bytes": sum(r.size_bytes for d in known for r in d.replicas.values()),
                "total_bytes": sum(d.total_bytes for d in known if d.total_bytes > 0),
                "usable_bytes": sum(d.usable_bytes for d in known if d.usable_bytes >= 0),
                "offline_dirs": [path for path, d in directories.items() if isinstance(d, KafkaError)],
            }
        )
    return {"cluster_id": cluster.cluster_id, "rows": rows}


async def broker(call: Call) -> dict[str, Any]:
    """One broker: its log directories, configs, and disk use over the last hour."""
    text = call.path["broker"]
    if not text.isdecimal() or len(text) > 9:
        raise BadInputError(f"A broker's id is a number, not {text!r}.")
    broker_id = int(text)
    cluster = await call.admin.describe_cluster(include_fenced_brokers=True)
    found = next((b for b in cluster.brokers if b.broker_id == broker_id), None)
    if found is None:
        raise NotFoundError(f"Broker {broker_id} is not registered.")
    ring = call.sources.sampler.ring
    head = {
        "id": broker_id,
        "address": f"{found.host}:{found.port}",
        "rack": found.rack,
        "fenced": broker_id in cluster.fenced,
        "problem": "",
        "dirs": [],
        "configs": [],
        "charts": [draw("Bytes on disk", [("bytes", ring.points(("broker", text, "bytes")))], size, binary=True)],
    }
    try:
        directories = (await call.admin.describe_log_dirs([broker_id], timeout_ms=5_000))[broker_id]
        return {
            **head,
            "dirs": [_directory(path, d) for path, d in sorted(directories.items())],
            "configs": await config_rows(call, ConfigResource.broker(broker_id)),
        }
    except BarnabasError as error:
        return {**head, "problem": f"The broker does not answer: {error}"}


def _directory(path: str, found: LogDirDescription | KafkaError) -> dict[str, Any]:
    if isinstance(found, KafkaError):
        return {"path": path, "error": str(found)}
    return {
        "path": path,
        "error": "",
        "replicas": len(found.replicas),
        "bytes": sum(replica.size_bytes for replica in found.replicas.values()),
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
        "cordoned": found.is_cordoned,
        "moving_in": sum(replica.is_future for replica in found.replicas.values()),
    }


async def quorum(call: Call) -> dict[str, Any]:
    """The quorum of controllers: its leader, voters and observers, and how far each is behind."""
    try:
        found = await call.admin.describe_quorum()
    except KafkaError as error:
        return {"problem": str(error), "leader": None, "replicas": []}
    rows = [
        {
            "node": replica.node_id,
            "role": "leader" if replica.node_id == found.leader_id else role,
            "log_end_offset": replica.log_end_offset,
            "lag": found.lag(replica),
            "last_fetch_ms": replica.last_fetch_ms,
            "last_caught_up_ms": replica.last_caught_up_ms,
        }
        for role, replicas in (("voter", found.voters), ("observer", found.observers))
        for replica in replicas
    ]
    return {
        "problem": "",
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "replicas": sorted(rows, key=lambda row: ({"leader": 0, "voter": 1}.get(str(row["role"]), 2), row["node"])),
    }


async def moves(call: Call) -> dict[str, Any]:
    """The reassignments under way, with the share of the bytes that the new replicas have."""
    found = await call.admin.list_partition_reassignments()
    sizes: dict[tuple[Any, int], int] = {}
    if found:
        for broker_id, directories in (await call.admin.describe_log_dirs()).items():
            for directory in directories.values():
                if isinstance(directory, LogDirDescription):
                    for partition, replica in directory.replicas.items():
                        sizes[partition, broker_id] = replica.size_bytes
    rows = []
    for partition, move in sorted(found.items()):
        whole = max((sizes.get((partition, b), 0) for b in move.original), default=0)
        copied = [min(sizes.get((partition, b), 0), whole) for b in move.adding]
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "from": list(move.original),
                "to": list(move.target),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "bytes": whole * len(move.adding),
                "copied": sum(copied),
            }
        )
    return {"rows": rows}
