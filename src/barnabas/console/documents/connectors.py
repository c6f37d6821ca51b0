"""Shell: connectors, their tasks and positions, from Connect's REST API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from barnabas.console.errors import NotFoundError
from barnabas.console.sources import Call
from barnabas.core.ids import TopicPartition
from barnabas.core.known_sums import sum_of_known
from barnabas.core.secret_names import HIDDEN, is_secret_name
from barnabas.registry.errors import RegistryError

_POSITIONS_MAX: Final = 1_000
"""The positions that a page shows."""


async def connector_list(call: Call) -> dict[str, Any]:
    """All connectors with their states, and the number of tasks in each state."""
    found = await call.sources.connect("GET", "/connectors?expand=status&expand=info")
    rows = [_row(name, one) for name, one in sorted(found.items())]
    return {"rows": rows}


async def connector(call: Call) -> dict[str, Any]:
    """One connector: its tasks with their errors, its positions, and its configuration without secrets."""
    name = call.path["connector"]
    try:
        status = await call.sources.connect("GET", f"/connectors/{quote(name, safe='')}/status")
        config = await call.sources.connect("GET", f"/connectors/{quote(name, safe='')}/config")
    except RegistryError as error:
        if error.code == 404:
            raise NotFoundError(f"The connector {name!r} does not exist.") from None
        raise
    positions = await _positions(call, name)
    return {
        **_row(name, {"status": status}),
        "positions": positions[:_POSITIONS_MAX],
        "lag": sum_of_known(position["lag"] for position in positions if position["topic"]),
        "tasks": status.get("tasks", []),
        "trace": status.get("connector", {}).get("trace", ""),
        "config": {key: HIDDEN if is_secret_name(key) else value for key, value in sorted(config.items())},
    }


async def _positions(call: Call, name: str) -> list[dict[str, Any]]:
    """How far the connector is (KIP-875): a sink in its topics, a source in what it reads; empty if it is unknown."""
    try:
        found = await call.sources.connect("GET", f"/connectors/{quote(name, safe='')}/offsets")
    except RegistryError:  # a worker before Kafka 3.5, or one that cannot read the offsets now
        return []
    ends = call.sources.sampler.sample.end_offsets
    return [_position(entry, ends) for entry in found.get("offsets", [])]


def _position(entry: Mapping[str, Any], ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    partition, offset = entry.get("partition") or {}, entry.get("offset") or {}
    if "kafka_topic" in partition and "kafka_offset" in offset:
        place = TopicPartition(str(partition["kafka_topic"]), int(partition["kafka_partition"]))
        at, end = int(offset["kafka_offset"]), ends.get(place)
        lag = None if end is None else max(end - at, 0)
        return {"topic": place.topic, "partition": str(place), "position": str(at), "end": end, "lag": lag}
    shown = [json.dumps(part, ensure_ascii=False, default=str) for part in (partition, offset)]
    return {"topic": "", "partition": shown[0], "position": shown[1], "end": None, "lag": None}


def _row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    status = found.get("status", {})
    states: dict[str, int] = {}
    for task in status.get("tasks", []):
        states[task["state"]] = states.get(task["state"], 0) + 1
    return {
        "connector": name,
        "type": status.get("type", ""),
        "state": status.get("connector", {}).get("state", "UNKNOWN"),
        "worker": status.get("connector", {}).get("worker_id", ""),
        "task_states": states,
    }
