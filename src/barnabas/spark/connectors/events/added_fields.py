"""Value: a field of a change event that its flat row, or its headers, keep (add.fields, add.headers)."""

from __future__ import annotations

from msgspec import Struct


class AddedField(Struct, frozen=True):
    """Where the field is, and its new name. `struct` is None for a field of the event itself."""

    struct: str | None
    field: str
    name: str
