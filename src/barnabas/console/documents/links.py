"""Shell: cluster links: their sources and patterns, and the state and lag of each mirror partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from barnabas.client.admin.links import LinkDescription, MirrorStatus, StoredMirrorState, lag_of_link
from barnabas.client.errors import UnsupportedApiError
from barnabas.console.documents.lists import page_of
from barnabas.console.errors import NotFoundError
from barnabas.console.sampling.charts import draw
from barnabas.console.sources import Call
from barnabas.console.units import count_text
from barnabas.core.ids import TopicPartition

ACTIONS = ("start", "pause", "resume", "recover", "stop")


async def link_list(call: Call) -> dict[str, Any]:
    """All links with their sources, and the states and the lag of their mirrors."""
    try:
        links = await call.admin.describe_links()
        statuses = await call.admin.describe_mirrors() if links else []
    except UnsupportedApiError as error:
        return {"rows": [], "problem": f"Links need Barnabas brokers: {error}"}
    rows = [
        {
            "link": name,
            "source": found.link.bootstrap_servers,
            "states": _states(found, {s.partition: s for s in statuses if s.link == name}),
            "partitions": len(found.mirrors),
            "lag": lag_of_link(found, statuses),
            "trouble": found.trouble,
        }
        for name, found in sorted(links.items())
    ]
    return {"rows": rows, "problem": ""}


async def link(call: Call) -> dict[str, Any]:
    """One link: its definition without passwords, its mirror partitions, and its lag over the last hour."""
    name = call.path["link"]
    try:
        found = (await call.admin.describe_links([name])).get(name)
        if found is None:
            raise NotFoundError(f"The link {name!r} does not exist.")
        statuses = await call.admin.describe_mirrors([name])
    except UnsupportedApiError as error:
        raise NotFoundError(f"The link {name!r} does not exist. Links need Barnabas brokers: {error}") from None
    now = {status.partition: status for status in statuses}
    definition, ring = found.link, call.sources.sampler.ring
    rows = [_mirror(m, now.get(TopicPartition(m.topic or "", m.partition))) for m in found.mirrors]
    sorts = {
        "partition": lambda row: (row["topic"], row["partition"]),
        "state": lambda row: row["state"],
        "lag": lambda row: -1 if row["lag"] is None else row["lag"],
        "last_fetch_ms": lambda row: row["last_fetch_ms"],
    }
    query = {"sort": "partition", **call.query}
    points = ring.points(("link", name, "lag"))
    return {
        **page_of(rows, query, name="name", sorts=sorts),
        "link": name,
        "path": f"/links/{quote(name, safe='')}",
        "source": definition.bootstrap_servers,
        "source_cluster_id": definition.source_cluster_id,
        "coordinator": found.coordinator_id,
        "trouble": found.trouble,
        "states": _states(found, now),
        "total_lag": lag_of_link(found, statuses),
        "topics": list(definition.topics),
        "topics_exclude": list(definition.topics_exclude),
        "groups": list(definition.groups),
        "groups_exclude": list(definition.groups_exclude),
        "acls": list(definition.acls),
        "settings": {**definition.settings, **definition.client},
        "charts": [draw("Lag", [("records", points)], count_text)],
    }


def _states(found: LinkDescription, now: Mapping[TopicPartition, MirrorStatus]) -> dict[str, int]:
    """The number of mirror partitions in each state; what their leaders say is newer than what is stored."""
    states = Counter(
        m.state if (status := now.get(TopicPartition(m.topic or "", m.partition))) is None else status.state
        for m in found.mirrors
    )
    return dict(sorted(states.items()))


def _mirror(stored: StoredMirrorState, now: MirrorStatus | None) -> dict[str, Any]:
    topic = stored.topic or f"(deleted {stored.topic_id})"
    return {
        "name": f"{topic}-{stored.partition}",
        "topic": topic,
        "exists": stored.topic is not None,
        "partition": stored.partition,
        "state": stored.state if now is None else now.state,
        "lag": None if now is None else now.known_lag,
        "source_end": None if now is None or now.source_high_watermark < 0 else now.source_high_watermark,
        "last_fetch_ms": -1 if now is None else now.last_fetch_ms,
        "skipped": 0 if now is None else max(now.skipped_records, 0),
        "stopped_at": stored.offset if stored.offset >= 0 else None,
        "reason": ("" if now is None else now.reason) or stored.reason,
    }
