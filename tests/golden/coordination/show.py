"""Group records, assignments and topic ids as the text that the scripts compare."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.protocol.wire.errors import WireError
from barnabas.server.coordination.group.classic import consumer_protocol
from tests.unit.server.coordination.kit import Catalog


def make_assignment(text: str) -> bytes:
    """`t/0/1` is topic t's partitions 0 and 1 in the consumers' format; other words are used unchanged."""
    topic, *partitions = text.split("/")
    return consumer_protocol.build_assignment({topic: [int(p) for p in partitions]}, 3) if partitions else text.encode()


def show_assignment(data: bytes) -> str:
    """Scripts use plain text; migration produces the consumers' own format."""
    if data[:2] in (b"\x00\x00", b"\x00\x01", b"\x00\x02", b"\x00\x03"):
        try:
            parsed = consumer_protocol.parse_assignment(data)
        except WireError:
            return repr(data)
        return ";".join(f"{topic}:{','.join(map(str, parts))}" for topic, parts in parsed.items()) or "nothing"
    return data.decode() or "''"


def show_ids(catalog: Catalog, entries: Any) -> str:
    names = {view.topic_id: name for name, view in catalog.views.items()}
    return ";".join(f"{names.get(e.topic_id, '?')}:{','.join(map(str, e.partitions))}" for e in entries) or "nothing"


def show_record(record: Any) -> str:
    key = record.key
    fields = " ".join(str(getattr(key, f.name)) for f in key.__schema__.fields)
    kind = type(key).__name__.removesuffix("Key")
    if record.value is None:
        return f"{kind} {fields} -> nothing"
    return f"{kind} {fields} -> {show_value(record.value)}"


def show_value(value: Any) -> str:
    parts = []
    for field in value.__schema__.fields:
        if field.name.endswith("timestamp") or field.name in ("metadata_hash", "client_host", "subscription"):
            continue
        content = getattr(value, field.name)
        if content in (None, "", -1, b"", []) or content == UUID(int=0):
            continue
        if isinstance(content, list) and content and hasattr(content[0], "__schema__"):
            content = "[" + ", ".join(show_value(item) for item in content) + "]"
        elif isinstance(content, bytes):
            content = f"<{len(content)} bytes>" if field.name == "metadata" else show_assignment(content)
        elif isinstance(content, UUID):
            content = content.int
        elif hasattr(content, "__schema__"):
            content = "(" + show_value(content) + ")"
        parts.append(f"{field.name}={content}")
    return " ".join(parts)
