"""Shell: the overview: the state of the cluster in one page, what is wrong first."""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.errors import RequestTimeoutError
from barnabas.console.documents.problems import problems
from barnabas.console.sampling.charts import draw
from barnabas.console.sampling.sampler import BYTES, LAG, MESSAGES, OFFLINE, UNDER_REPLICATED
from barnabas.console.sources import Call
from barnabas.console.units import count_text, rate_text, size
from barnabas.core.errors import BarnabasError

_QUORUM_MS: Final = 3_000


async def overview(call: Call) -> dict[str, Any]:
    """Numbers, problems and charts, from the newest sample."""
    sampler = call.sources.sampler
    await sampler.first()
    sample, ring = sampler.sample, sampler.ring
    cluster = sample.cluster
    controller, answers = await _controller(call)
    brokers = [] if cluster is None else [b for b in cluster.brokers if b.broker_id not in cluster.fenced]
    return {
        "cluster_id": None if cluster is None else cluster.cluster_id,
        "sampled_ms": sample.at_ms,
        "brokers": len(brokers),
        "brokers_fenced": 0 if cluster is None else len(cluster.fenced),
        "controller": controller,
        "topics": sum(not topic.is_internal for topic in sample.topics.values()),
        "internal_topics": sum(topic.is_internal for topic in sample.topics.values()),
        "partitions": sum(topic.partition_count for topic in sample.topics.values()),
        "groups": len(sample.groups),
        "bytes": sum(sample.topic_bytes.values()),
        "messages_per_second": ring.rate(MESSAGES),
        "lag": sum(sample.lags.values()),
        "problems": problems(sample, controller_answers=answers),
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


def _busiest(call: Call) -> list[dict[str, Any]]:
    sampler = call.sources.sampler
    rates: list[dict[str, Any]] = [
        {"topic": name, "rate": sampler.ring.rate(("topic", name, "end_offset")), "bytes": size_bytes}
        for name, size_bytes in sampler.sample.topic_bytes.items()
        if not sampler.sample.topics[name].is_internal
    ]
    return sorted(rates, key=lambda r: (-(r["rate"] or 0), -r["bytes"], r["topic"]))[:5]


async def _controller(call: Call) -> tuple[int | None, bool]:
    """The id of the active controller if it is known, and whether a controller may be active: brokers forward the
    question, and without an active controller there is no answer in time."""
    try:
        return (await call.admin.describe_quorum(timeout_ms=_QUORUM_MS)).leader_id, True
    except RequestTimeoutError:
        return None, False
    except BarnabasError:  # not authorized, or a cluster without a quorum
        return None, True
