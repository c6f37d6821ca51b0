"""Shell: connectors and their tasks, from Connect's REST API."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from barnabas.console.errors import NotFoundError
from barnabas.console.sources import Call
from barnabas.registry.errors import RegistryError

_SECRET_WORDS = ("password", "secret", "token", "credential", "jaas", "private", "key.pem")


async def connector_list(call: Call) -> dict[str, Any]:
    """All connectors with their states, and the number of tasks in each state."""
    found = await call.sources.connect("GET", "/connectors?expand=status&expand=info")
    rows = [_row(name, one) for name, one in sorted(found.items())]
    return {"rows": rows}


async def connector(call: Call) -> dict[str, Any]:
    """One connector: its tasks with their errors, and its configuration without secrets."""
    name = call.path["connector"]
    try:
        status = await call.sources.connect("GET", f"/connectors/{quote(name, safe='')}/status")
        config = await call.sources.connect("GET", f"/connectors/{quote(name, safe='')}/config")
    except RegistryError as error:
        if error.code == 404:
            raise NotFoundError(f"The connector {name!r} does not exist.") from None
        raise
    return {
        **_row(name, {"status": status}),
        "tasks": status.get("tasks", []),
        "trace": status.get("connector", {}).get("trace", ""),
        "config": {key: "[hidden]" if _is_secret(key) else value for key, value in sorted(config.items())},
    }


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


def _is_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_WORDS)
