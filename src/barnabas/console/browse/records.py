"""Shell: one record as people see it: decoded, searched and masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.client.values import ConsumerRecord
from barnabas.console.access.masking import HIDDEN, MaskRule, masked, rules_of
from barnabas.console.browse.decoding import Decoded, Decoder, decode_bytes
from barnabas.console.browse.query import BrowseQuery


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record with decoded and masked parts. `document` is what a download has; pages shorten long parts."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Decoded
    value: Decoded
    headers: tuple[tuple[str, Decoded], ...]

    def document(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp_ms,
            "key": self.key.value,
            "value": self.value.value,
            "headers": [{"name": name, "value": value.value} for name, value in self.headers],
            "key_format": self.key.format,
            "value_format": self.value.format,
            "key_size": self.key.size,
            "value_size": self.value.size,
            **({"schema_id": self.value.schema_id} if self.value.schema_id is not None else {}),
            **({"problem": self.value.problem or self.key.problem} if self.value.problem or self.key.problem else {}),
        }


class Viewer:
    """Decodes the records of one topic for one user, whose role decides whether they are masked."""

    def __init__(self, topic: str, decoder: Decoder, rules: Sequence[MaskRule], digest: Callable[[str], str]) -> None:
        self._topic = topic
        self._decoder = decoder
        self._digest = digest
        self._rules = {part: rules_of(rules, topic, part) for part in ("key", "value", "headers")}

    async def view(self, record: ConsumerRecord[bytes, bytes], query: BrowseQuery) -> RecordView | None:
        """The record; None if the search does not accept it. The search sees masked fields only, so that a user
        cannot find a hidden value by searching for it.
        """
        key = self._mask(await self._part(record.key, query.key_format, is_key=True), "key")
        if query.key and query.key.lower() not in _plain(key.value).lower():
            return None
        value = self._mask(await self._part(record.value, query.value_format), "value")
        headers = self._headers(record.headers)
        view = RecordView(record.partition, record.offset, record.timestamp, key, value, headers)
        if query.filter is not None and not query.filter.accepts(_searched(view)):
            return None
        return view

    async def _part(self, data: Any, wanted: str, *, is_key: bool = False) -> Decoded:
        return await self._decoder.decode(self._topic, None if data is None else bytes(data), wanted, is_key=is_key)

    def _mask(self, decoded: Decoded, part: str) -> Decoded:
        rules = self._rules[part]
        if not rules or decoded.format == "null":
            return decoded
        value = masked(decoded.value, rules, self._digest) if decoded.is_structure else HIDDEN
        if not decoded.is_structure and all(not rule.path for rule in rules) and decoded.format == "text":
            value = masked(decoded.value, rules, self._digest)
        return Decoded(decoded.format, value, decoded.size, decoded.schema_id, "masked")

    def _headers(self, headers: Sequence[tuple[str, bytes | None]]) -> tuple[tuple[str, Decoded], ...]:
        shown = []
        for name, data in headers:
            decoded = Decoded("null", None, 0) if data is None else decode_bytes(bytes(data), "auto")
            if rules := self._rules["headers"]:
                found = masked({name: decoded.value}, rules, self._digest)
                if found is None or name not in found:
                    continue
                decoded = Decoded(decoded.format, found[name], decoded.size)
            shown.append((name, decoded))
        return tuple(shown)


def newest_of(found: Sequence[RecordView], limit: int) -> tuple[list[RecordView], dict[int, int]]:
    """The newest records, newest first, and for each partition the largest offset that was left out.

    The records of a partition stay in the order of their offsets, whatever their timestamps are.
    """
    queues: dict[int, list[RecordView]] = {}
    for view in sorted(found, key=lambda view: view.offset):
        queues.setdefault(view.partition, []).append(view)
    newest: list[RecordView] = []
    while len(newest) < limit and queues:
        partition = max(queues, key=lambda p: (queues[p][-1].timestamp_ms, -p))
        newest.append(queues[partition].pop())
        if not queues[partition]:
            del queues[partition]
    return newest, {partition: queue[-1].offset for partition, queue in queues.items()}


def _searched(view: RecordView) -> Mapping[str, Any]:
    return {
        "partition": view.partition,
        "offset": view.offset,
        "timestamp": view.timestamp_ms,
        "key": view.key.value,
        "value": view.value.value,
        "headers": {name: value.value for name, value in view.headers},
    }


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
