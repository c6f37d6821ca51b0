"""Codec: a record as one line of JSON, or formatted with a template that the user gives."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from string import Formatter
from typing import Any, Final

from barnabas.cli.records.line_format import unescape

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def record_json(record: Any) -> dict[str, Any]:
    """A record as a JSON object. Bytes in UTF-8 become a string, other bytes `{"base64": "..."}`, so that no data is
    lost. What was decoded by a schema is JSON itself.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": time_text(record.timestamp),
        "key": _document(record, "key"),
        "value": _document(record, "value"),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _document(record: Any, part: str) -> Any:
    """The key or the value: its document if it was decoded by a schema (see `registries.DecodedRecord`)."""
    found = getattr(record, f"{part}_document", None)
    return _text(getattr(record, part)) if found is None else found


def json_lines(records: Iterable[Any]) -> bytes:
    """One line with a JSON object per record."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return "".join([encode(record_json(record)) + "\n" for record in records]).encode()


def time_text(timestamp_ms: int) -> str | None:
    """ISO 8601 in UTC with milliseconds; None if the timestamp is missing or outside the years that `datetime`
    supports.
    """
    if timestamp_ms < 0:
        return None
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _headers(record: Any) -> bytes:
    return b",".join([f"{name}:".encode() + (b"" if value is None else value) for name, value in record.headers])


_FIELDS: Final[dict[str, Callable[[Any], bytes]]] = {
    "topic": lambda r: str(r.topic).encode(),
    "partition": lambda r: b"%d" % r.partition,
    "offset": lambda r: b"%d" % r.offset,
    "timestamp": lambda r: b"%d" % r.timestamp,
    "time": lambda r: (time_text(r.timestamp) or "-").encode(),
    "key": lambda r: b"" if r.key is None else r.key,
    "value": lambda r: b"" if r.value is None else r.value,
    "headers": _headers,
}


@dataclass(frozen=True, slots=True)
class LineTemplate:
    """A template such as `{partition}@{offset} {key}={value}`. `{{` stands for a brace; a newline is appended to each
    record.
    """

    parts: tuple[bytes | Callable[[Any], bytes], ...]

    @classmethod
    def parse(cls, text: str) -> LineTemplate:
        """Parse a template. Raises ValueError for a field that records do not have."""
        parts: list[bytes | Callable[[Any], bytes]] = []
        for literal, name, form, conversion in Formatter().parse(unescape(text)):
            if literal:
                parts.append(literal.encode())
            if name is None:
                continue
            if name not in _FIELDS or form or conversion:
                raise ValueError(f"--format: {{{name}}} is not a field; the fields are {', '.join(_FIELDS)}")
            parts.append(_FIELDS[name])
        return cls((*parts, b"\n"))

    def format_many(self, records: Iterable[Any]) -> bytes:
        parts = self.parts
        return b"".join([part if isinstance(part, bytes) else part(r) for r in records for part in parts])
