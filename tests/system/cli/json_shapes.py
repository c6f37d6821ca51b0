"""The shape of JSON documents: the names of fields and the types of values, as a JSON document itself.

{"topic": "orders", "offsets": [{"lag": 3}, {"lag": null}]}
-> {"topic": "string", "offsets": [{"lag": "integer or null"}]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

NULLABLE: Final = {
    "brokers.rack", "partitions.start", "partitions.end", "offsets.committed", "offsets.start", "offsets.end",
    "offsets.lag", "offsets.member", "offsets.host", "offsets.client", "members.instance_id", "members.instance",
    "consume.time", "consume.key", "consume.value", "configs.value", "logs.offset", "logs.timestamp", "top.rate",
    "topics.rate", "groups.lag", "groups.lag_change", "groups.catches_up_s", "brokers.free", "context.registry",
    "transactions.open_since", "transactions.started_ms", "transactions.lasted_ms", "groups.assignor",
    "backup.base", "backup.acls", "backup.users", "backup.quotas", "verify.differs_at",
    "links.differs_at", "comparisons.differs_at", "links.error", "flows.error", "pipelines.pid", "pipelines.lag",
    "pipelines.rows_per_second", "flows.rows_per_second", "flows.batch_id", "flows.batch_ms", "flows.lag",
    "links.lost_records", "replicas.lag", "flows.restarts_max", "flows.retry_at_ms",
    "pipelines.ledger_batch", "pipelines.ledger_sha256", "pipelines.checkpoint_sha256",
    "flows.watermark", "flows.state_rows", "flows.state_bytes", "share-groups.assignor", "share-groups.from",
}  # fmt: skip
"""Fields that may have no value, which depends on the moment, by the field or command that contains them."""
TYPES: Final = {
    "rack": "string",
    "instance": "string",
    "lag_change": "number",
    "ledger_offsets": "array of strings or null",
    "checkpoint_offsets": "array of strings or null",
    "base": "string",
    "differs_at": "integer",
    "error": "string",
    "from": "integer",
    "pid": "integer",
    "restarts_max": "integer",
    "retry_at_ms": "integer",
    "rows_per_second": "number",
    "catches_up_s": "number",
    "rate": "number",
}
"""The types of fields that have no value in the samples, or one that looks like an integer."""
EMPTY: Final[dict[str, Any]] = {
    "in_trouble": [
        {"partition": "string", "trouble": "string", "leader": "integer", "isr": ["integer"], "missing": ["integer"]}
    ],
    "offline_dirs": ["string"],
    "problems": ["string"],
    "damage": [{"object": "string", "problem": "string", "runs": ["string"]}],
    "interrupted": ["string"],
    "notes": ["string"],
    "runs": ["string"],
    "clients.clients": [
        {
            **dict.fromkeys(("client_id", "address", "principal", "topic"), "string"),
            **dict.fromkeys(("partition", "producer_id"), "integer"),
            **dict.fromkeys(("bytes_in", "bytes_out", "requests", "seconds", "records_in"), "number"),
        }
    ],
    "cluster moves": [{"partition": "string", "replicas": ["integer"], "adding": ["integer"], "removing": ["integer"]}],
    "cluster elect": [{"partition": "string", "result": "string", "why": "string"}],
    "partitions": [{"topic": "string", "partition": "integer", "replicas": ["integer"]}],
    "acls": ["string"],
    "groups_exclude": ["string"],
    "link.groups": ["string"],
    "links.groups": [
        {
            "group_id": "string",
            "partition": "string",
            "on_source": "integer or null",
            "here": "integer or null",
            "behind": "integer",
        }
    ],
    "after": ["string"],
    "waiting_for": ["string"],
    "renewers": ["string"],
    "resets": ["string"],
    "share-groups.members": [
        {"member": "string", "client": "string", "host": "string", "epoch": "integer", "partitions": ["string"]}
    ],
    "topics_exclude": ["string"],
    "references": [{"name": "string", "subject": "string", "version": "integer"}],
}
"""The shapes of lists that are empty in the samples."""
MAPS: Final = {"client", "configs", "failed", "settings", "quotas", "entity", "metrics"}
"""Fields whose value has any names."""


def shape(samples: Sequence[Any], name: str) -> Any:
    """The shape that all samples have. `name` is that of the field or command."""
    if all(isinstance(one, dict) for one in samples):
        return _of_objects(samples, name)
    if all(isinstance(one, list) for one in samples):
        items = [item for one in samples for item in one]
        return [shape(items, name)] if items else EMPTY.get(name, [])
    return " or ".join(sorted({_type(one) for one in samples}, key=lambda kind: (kind == "null", kind)))


def _of_objects(samples: Sequence[dict[str, Any]], outer: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in samples for name in one):
        values = [one[name] for one in samples if name in one]
        if name in MAPS and all(isinstance(value, dict) for value in values):
            inner = [item for value in values for item in value.values()]
            found[name] = {"NAME": shape(inner, name) if inner else "string"}
            continue
        found[name] = TYPES.get(name) or shape(values, name)
        if found[name] == [] and f"{outer}.{name}" in EMPTY:
            found[name] = EMPTY[f"{outer}.{name}"]
        if found[name] == "null" and name in ("start", "lag"):
            found[name] = "integer"
        if f"{outer}.{name}" in NULLABLE and isinstance(found[name], str) and "null" not in found[name]:
            found[name] += " or null"
    return found


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def render(document: Any, width: int = 110) -> str:
    """The shape as JSON, in one line where it fits."""
    return "\n".join(_lines(document, "", width))


def _lines(document: Any, indent: str, width: int) -> list[str]:
    line = indent + json.dumps(document)
    if len(line) <= width or not isinstance(document, dict | list) or not document:
        return [line]
    if isinstance(document, list):
        inner = _lines(document[0], indent, width)
        return [f"{indent}[{inner[0].strip()}", *inner[1:-1], f"{inner[-1]}]"]
    lines = [indent + "{"]
    for place, (name, value) in enumerate(document.items()):
        comma = "," if place + 1 < len(document) else ""
        inner = _lines(value, indent + "  ", width)
        first = f"{indent}  {json.dumps(name)}: {inner[0].strip()}"
        if len(inner) == 1:
            lines.append(first + comma)
        else:
            lines += [first, *inner[1:-1], inner[-1] + comma]
    return [*lines, indent + "}"]
