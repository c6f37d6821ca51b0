"""Shell: the overview: the state of the cluster in one page, what is wrong first."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from barnabas.console.sampling.charts import draw
from barnabas.console.sampling.sampler import BYTES, LAG, MESSAGES, OFFLINE, UNDER_REPLICATED, ClusterSample
from barnabas.console.sources import Call
from barnabas.console.units import count_text, duration_text, rate_text, size
from barnabas.core.errors import BarnabasError, KafkaError

_NAMED_MAX = 10


async def overview(call: Call) -> dict[str, Any]:
    """Numbers, problems and charts, from the newest sample."""
    sampler = call.sources.sampler
    await sampler.first()
    sample, ring = sampler.sample, sampler.ring
    cluster = sample.cluster
    brokers = [] if cluster is None else [b for b in cluster.brokers if b.broker_id not in cluster.fenced]
    return {
        "cluster_id": None if cluster is None else cluster.cluster_id,
        "sampled_ms": sample.at_ms,
        "brokers": len(brokers),
        "brokers_fenced": 0 if cluster is None else len(cluster.fenced),
        "controller": await _controller(call),
        "topics": sum(not topic.is_internal for topic in sample.topics.values()),
        "internal_topics": sum(topic.is_internal for topic in sample.topics.values()),
        "partitions": sum(topic.partition_count for topic in sample.topics.values()),
        "groups": len(sample.groups),
        "bytes": sum(sample.topic_bytes.values()),
        "messages_per_second": ring.rate(MESSAGES),
        "lag": sum(sample.lags.values()),
        "problems": problems(sample),
        "charts": [
            draw("Records per second", [("in", ring.rates(MESSAGES))], rate_text),
            draw("Bytes on disk", [("bytes", ring.points(BYTES))], size, binary=True),
            draw("Lag of all groups", [("records", ring.points(LAG))], count_text),
            draw(
                "Unhealthy partitions",
                [("under-replicated", ring.points(UNDER_REPLICATED)), ("offline", ring.points(OFFLINE))],
                count_text,
            ),
        ],
        "top_topics": _busiest(call),
    }


def problems(sample: ClusterSample) -> list[dict[str, str]]:
    """What is wrong, worst first, each with the page that explains it."""
    found: list[dict[str, str]] = []
    if sample.problem:
        found.append(_problem("bad", f"The cluster does not answer: {sample.problem}"))
        return found
    partitions = [p for view in sample.topics.values() for p in view.partitions]
    offline = [p for p in partitions if p.leader < 0]
    behind = [p for p in partitions if p.leader >= 0 and len(p.isr) < len(p.replicas)]
    for p in offline[:_NAMED_MAX]:
        text = f"{p.topic}-{p.partition} is offline: it has no leader."
        found.append(_problem("bad", text, f"/topics/{p.topic}"))
    if sample.cluster is not None:
        found += [_problem("bad", f"Broker {i} is fenced: it has no session.") for i in sorted(sample.cluster.fenced)]
    for broker_id, directories in sorted(sample.log_dirs.items()):
        for path, directory in directories.items():
            if isinstance(directory, KafkaError):
                found.append(_problem("bad", f"Broker {broker_id}: {path} is offline."))
            elif 0 <= directory.usable_bytes < directory.total_bytes * 0.1:
                text = f"Broker {broker_id}: {path} has {size(directory.usable_bytes)} left."
                found.append(_problem("warn", text))
    for name, link in sorted(sample.links.items()):
        path = f"/links/{quote(name, safe='')}"
        if link.trouble:
            found.append(_problem("bad", f"The link {name}: {link.trouble}", path))
        found += [_problem("bad", f"The mirror {p} of link {name} has failed: {why}", path) for p, why in link.failed]
    for partition, (offset, since_ms) in sorted(sample.held_back.items())[:_NAMED_MAX]:
        text = f"read_committed readers of {partition} stop at offset {offset}, {_since(since_ms, sample)}."
        found.append(_problem("warn", text, f"/topics/{partition.topic}/why"))
    for group, (_, since_ms) in sorted(sample.stalled_groups.items())[:_NAMED_MAX]:
        text = f"The group {group} has members and a lag of {sample.lags[group]:,}, and commits nothing,"
        found.append(_problem("warn", f"{text} {_since(since_ms, sample)}.", f"/groups/{quote(group, safe='')}/why"))
    for p in behind[:_NAMED_MAX]:
        missing = ", ".join(str(i) for i in sorted(set(p.replicas) - set(p.isr)))
        text = f"{p.topic}-{p.partition} is under-replicated: broker {missing} is not in sync."
        found.append(_problem("warn", text, f"/topics/{p.topic}"))
    unnamed = max(len(offline) - _NAMED_MAX, 0) + max(len(behind) - _NAMED_MAX, 0)
    if unnamed:
        found.append(_problem("warn", f"{unnamed} more partitions are unhealthy.", "/topics"))
    return found


def _since(since_ms: int, sample: ClusterSample) -> str:
    return f"for {duration_text(sample.at_ms - since_ms)} or longer"


def _problem(level: str, text: str, link: str = "/brokers") -> dict[str, str]:
    return {"level": level, "text": text, "link": link}


def _busiest(call: Call) -> list[dict[str, Any]]:
    sampler = call.sources.sampler
    rates: list[dict[str, Any]] = [
        {"topic": name, "rate": sampler.ring.rate(("topic", name, "end_offset")), "bytes": size_bytes}
        for name, size_bytes in sampler.sample.topic_bytes.items()
        if not sampler.sample.topics[name].is_internal
    ]
    return sorted(rates, key=lambda r: (-(r["rate"] or 0), -r["bytes"], r["topic"]))[:5]


async def _controller(call: Call) -> int | None:
    try:
        return (await call.admin.describe_quorum(timeout_ms=3_000)).leader_id
    except BarnabasError:  # no leader, not authorized, or a cluster without a quorum
        return None
