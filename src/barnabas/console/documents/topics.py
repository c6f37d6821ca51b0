"""Shell: the list of topics, and one topic: partitions, configs, groups, producers, explanations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from barnabas.client.admin.maintenance import PartitionFacts
from barnabas.client.cluster.metadata import TopicDescription
from barnabas.client.explanations import partition as explained
from barnabas.client.values import EARLIEST, LATEST, ConfigResource
from barnabas.console.documents.lists import page_of
from barnabas.console.errors import NotFoundError
from barnabas.console.sampling.charts import draw
from barnabas.console.sources import Call
from barnabas.console.units import rate_text, size
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known

EXPLAINED_MAX = 50


async def topic_list(call: Call) -> dict[str, Any]:
    """The topics with sizes and rates. Internal topics are shown on request."""
    sampler = call.sources.sampler
    internal = bool(call.query.get("internal"))
    listed = await call.admin.list_topics(include_internal=True)
    rows = [
        {
            "topic": topic.name,
            "internal": topic.is_internal,
            "partitions": topic.partition_count,
            "bytes": sampler.sample.topic_bytes.get(topic.name),
            "rate": sampler.ring.rate(("topic", topic.name, "end_offset")),
        }
        for topic in listed
        if internal or not topic.is_internal
    ]
    page = page_of(
        rows,
        call.query,
        name="topic",
        sorts={
            "topic": lambda row: row["topic"],
            "partitions": lambda row: row["partitions"],
            "bytes": lambda row: row["bytes"] or 0,
            "rate": lambda row: row["rate"] or 0,
        },
    )
    described = await call.admin.describe_topics([row["topic"] for row in page["rows"]])
    for row in page["rows"]:
        view = described.get(row["topic"])
        if isinstance(view, TopicDescription):
            row["replicas"] = max((len(p.replicas) for p in view.partitions), default=0)
            row["unhealthy"] = sum(p.leader < 0 or len(p.isr) < len(p.replicas) for p in view.partitions)
    return {**page, "internal": internal}


async def describe(call: Call) -> TopicDescription:
    """The metadata of the topic in the path. Raises NotFoundError."""
    name = call.path["topic"]
    view = (await call.admin.describe_topics([name]))[name]
    if isinstance(view, KafkaError):
        if view.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise NotFoundError(f"The topic {name!r} does not exist.")
        raise view
    return view


async def topic(call: Call) -> dict[str, Any]:
    """The partitions of a topic, and its charts."""
    view = await describe(call)
    ring = call.sources.sampler.ring
    led = [p.topic_partition for p in view.partitions if p.leader >= 0]
    starts = await call.admin.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await call.admin.list_offsets(dict.fromkeys(led, LATEST))
    sizes = _replica_sizes(call, view.name)
    rows: list[dict[str, Any]] = [
        {
            "partition": p.partition,
            "leader": p.leader,
            "replicas": list(p.replicas),
            "isr": sorted(p.isr),
            "out_of_sync": sorted(set(p.replicas) - set(p.isr)),
            "preferred": bool(p.replicas) and p.leader == p.replicas[0],
            "start": _offset(starts.get(p.topic_partition)),
            "end": _offset(ends.get(p.topic_partition)),
            "bytes": sizes.get((p.partition, p.leader)),
        }
        for p in view.partitions
    ]
    return {
        "topic": view.name,
        "topic_id": str(view.topic_id),
        "internal": view.is_internal,
        "partitions": rows,
        "records": sum((row["end"] or 0) - (row["start"] or 0) for row in rows),
        "bytes": sum(row["bytes"] or 0 for row in rows),
        "rate": ring.rate(("topic", view.name, "end_offset")),
        "charts": [
            draw("Records per second", [("in", ring.rates(("topic", view.name, "end_offset")))], rate_text),
            draw("Bytes of all replicas", [("bytes", ring.points(("topic", view.name, "bytes")))], size, binary=True),
        ],
    }


def _replica_sizes(call: Call, name: str) -> dict[tuple[int, int], int]:
    """The bytes of each (partition, broker)."""
    found: dict[tuple[int, int], int] = {}
    for broker_id, directories in call.sources.sampler.sample.log_dirs.items():
        for directory in directories.values():
            if isinstance(directory, KafkaError):
                continue
            for partition, replica in directory.replicas.items():
                if partition.topic == name and not replica.is_future:
                    found[partition.partition, broker_id] = replica.size_bytes
    return found


async def configs(call: Call) -> dict[str, Any]:
    """The configs of a topic with the sources of their values, changed ones first."""
    view = await describe(call)
    return {"topic": view.name, "configs": await config_rows(call, ConfigResource.topic(view.name))}


async def config_rows(call: Call, resource: ConfigResource) -> list[dict[str, Any]]:
    """The configs of a resource. A sensitive value is never shown."""
    found = (await call.admin.describe_configs([resource], include_documentation=True))[resource]
    if isinstance(found, KafkaError):
        raise found
    rows = [
        {
            "name": entry.name,
            "value": None if entry.is_sensitive else entry.value,
            "source": entry.source.name.lower().replace("_", " "),
            "is_default": entry.is_default,
            "is_own": entry.source.name in ("TOPIC", "DYNAMIC_BROKER", "GROUP"),
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
            "documentation": entry.documentation or "",
        }
        for entry in found.values()
    ]
    return sorted(rows, key=lambda row: (not row["is_own"], row["is_default"], row["name"]))


async def groups(call: Call) -> dict[str, Any]:
    """The consumer groups that have committed offsets of a topic, with their lag."""
    view = await describe(call)
    rows = []
    for group in call.sources.sampler.sample.groups[:1_000]:
        try:
            committed = await call.admin.list_group_offsets(
                group.group_id, [p.topic_partition for p in view.partitions]
            )
        except KafkaError:  # deleted just now, or not a group of consumers
            continue
        ends = call.sources.sampler.sample.end_offsets
        lags = [
            max(ends[p] - answer.offset, 0) if p in ends else None
            for p, answer in committed.items()
            if not isinstance(answer, KafkaError) and answer.offset >= 0
        ]
        if lags:
            rows.append({"group": group.group_id, "state": group.state.value, "lag": sum_of_known(lags)})
    return {"topic": view.name, "groups": rows}


async def producers(call: Call) -> dict[str, Any]:
    """The idempotent and transactional producers of a topic's partitions."""
    view = await describe(call)
    found = await call.admin.describe_producers([p.topic_partition for p in view.partitions[:200]])
    rows: list[dict[str, Any]] = []
    for partition, answer in sorted(found.items()):
        if not isinstance(answer, KafkaError):
            rows += [{"partition": partition.partition, **asdict(producer)} for producer in answer]
    return {"topic": view.name, "producers": rows, "limited": len(view.partitions) > 200}


async def why(call: Call) -> dict[str, Any]:
    """Why readers are held back, why the log is not compacted, and why old records are still kept."""
    view = await describe(call)
    partitions = [p.topic_partition for p in view.partitions if p.leader >= 0][:EXPLAINED_MAX]
    try:
        found = await call.admin.explain_partitions(partitions)
    except BarnabasError as error:
        return {"topic": view.name, "partitions": [], "problem": _not_explained(error)}
    return {
        "topic": view.name,
        "partitions": [_explanation(name, facts) for name, facts in sorted(found.items())],
        "problem": "",
        "offline": [p.partition for p in view.partitions if p.leader < 0],
        "limited": len(view.partitions) > EXPLAINED_MAX,
    }


def _explanation(name: TopicPartition, facts: PartitionFacts | KafkaError) -> dict[str, Any]:
    if isinstance(facts, KafkaError):
        return {"partition": name.partition, "error": str(facts), "answers": {}, "held": 0, "open_transactions": []}
    return {
        "partition": name.partition,
        "error": "",
        "answers": explained.answers(name, facts),
        "held": facts.high_watermark - facts.last_stable_offset,
        "log_start_offset": facts.log_start_offset,
        "last_stable_offset": facts.last_stable_offset,
        "high_watermark": facts.high_watermark,
        "log_end_offset": facts.log_end_offset,
        "segments": facts.segments,
        "bytes": facts.size_bytes,
        "open_transactions": [asdict(t) for t in facts.open_transactions],
    }


def _not_explained(error: BarnabasError) -> str:
    return f"Explanations need a Barnabas broker: {error}"


def _offset(answer: Any) -> int | None:
    return None if answer is None or isinstance(answer, KafkaError) or answer.offset < 0 else int(answer.offset)
