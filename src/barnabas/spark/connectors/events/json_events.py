"""Codec: change events without a schema, which are JSON texts -> their rows, for `unwrap.py`.

A value is a change event if it is an object with `before`, `after` and `op`. The numbers of a row keep the digits that
they have in the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from barnabas.spark.connectors.events.added_fields import AddedField
from barnabas.spark.connectors.events.errors import EventError

Members = dict[str, msgspec.Raw]

_MEMBERS: Final = msgspec.json.Decoder(Members)
_EVENT: Final = ("before", "after", "op")


class JsonEvent(msgspec.Struct, frozen=True):
    """A change event: its members, each as it is in the text, and the letter of its operation."""

    members: Members
    op: str

    def flat(self, fields: Sequence[AddedField], deleted: str | None) -> str | None:
        """The new row with these fields of the event, as JSON; None for a delete. With a name for `deleted`, that
        member says "true" or "false", and a delete has the old row.
        """
        is_delete = self.op == "d"
        row = self.row("before" if is_delete and deleted is not None else "after")
        if row is None:
            return None
        members = dict(row)
        if deleted is not None:
            members[deleted] = msgspec.Raw(b'"true"' if is_delete else b'"false"')
        members |= {one.name: self.field(one.struct, one.field) for one in fields}
        return msgspec.json.encode(members).decode()

    def route(self, name: str) -> str | None:
        """The text of a field of the row, of the old row of a delete; None if it is missing, null or empty."""
        row = self.row("before" if self.op == "d" else "after") or {}
        text = as_text(row[name]) if name in row else None
        return text if text is not None and text.strip() else None

    def row(self, name: str) -> Members | None:
        """The members of `before` or `after`; None for null. Raises EventError if it is neither an object nor null."""
        raw = bytes(self.members[name])
        if raw == b"null":
            return None
        try:
            return _MEMBERS.decode(raw)
        except msgspec.DecodeError as error:
            raise EventError(
                f"{name} of a change event is not an object ({error}): correct the program that wrote it"
            ) from None

    def field(self, struct: str | None, name: str) -> msgspec.Raw:
        """A field of one of the event's objects, or else of the event itself. Raises EventError if there is none."""
        outer = None if struct is None else self.members.get(struct)
        inner: Members = {}
        if outer is not None:
            try:
                inner = _MEMBERS.decode(bytes(outer))
            except msgspec.DecodeError:  # null, or no object
                inner = {}
        found = inner.get(name, self.members.get(name))
        if found is None and outer is not None and bytes(outer) == b"null":
            return msgspec.Raw(b"null")  # such as `transaction` without provide.transaction.metadata
        if found is None:
            path = name if struct is None else f"{struct}.{name}"
            raise EventError(
                f"a change event has no field {path}, which add.fields or add.headers names: it has"
                f" {', '.join(self.members)}"
            )
        return found


def json_events(texts: Sequence[str | None]) -> list[JsonEvent | None]:
    """The change events among JSON texts; None for all other values."""
    return [None if text is None else _event(text) for text in texts]


def _event(text: str) -> JsonEvent | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        members = _MEMBERS.decode(text)
    except msgspec.DecodeError:
        return None  # not an object of members, so no event
    if any(name not in members for name in _EVENT):
        return None
    op = msgspec.json.decode(bytes(members["op"]))
    return JsonEvent(members, op) if isinstance(op, str) else None


def as_text(raw: msgspec.Raw) -> str | None:
    """A JSON value as a text: strings without quotes, None for null, all others as they are."""
    value = bytes(raw)
    if value == b"null":
        return None
    return str(msgspec.json.decode(value)) if value.startswith(b'"') else value.decode()
