"""Value: the layout of one version of a message: the fields that the version carries, and their form."""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import cast

from barnabas.protocol.wire.schema import MessageField, MessageStruct

STRING_BYTES_MAX = 32_767
"""The maximum number of bytes of a string. As in Kafka, this is the limit in flexible versions too, although the varint
of their lengths could be larger.
"""

FIXED_FORMATS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "bool": "?",
    "uuid": "16s",
}
"""The `struct` format codes of the types of a fixed size."""


class VersionLayout:
    """Properties of fields in one version of the message `cls`."""

    def __init__(self, cls: type[MessageStruct], version: int) -> None:
        self.version = version
        self.flexible = version in cls.__schema__.flexible

    def is_carried(self, field: MessageField) -> bool:
        return self.version in field.versions

    def is_tagged(self, field: MessageField) -> bool:
        return self.version in field.tagged and self.version in field.versions

    def is_nullable(self, field: MessageField) -> bool:
        return self.version in field.null

    def is_compact(self, field: MessageField) -> bool:
        """True if the length is encoded as the varint of length + 1; then 0 means null."""
        return self.flexible if field.flexible is None else self.version in field.flexible

    def tagged(self, cls: type[MessageStruct]) -> list[MessageField]:
        """The tagged fields of a struct, in the order of their tags."""
        return sorted(filter(self.is_tagged, cls.__schema__.fields), key=attrgetter("tag"))

    def smallest_element(self, array: MessageField) -> int:
        """The minimum size of one array element in bytes, at least 1: it limits the count of elements in an input."""
        if isinstance(array.element, str):
            return self._smallest_value(element_field(array))
        return max(1, self._smallest_struct(cast("type[MessageStruct]", array.element)))

    def _smallest_struct(self, cls: type[MessageStruct]) -> int:
        inline = (f for f in cls.__schema__.fields if self.is_carried(f) and not self.is_tagged(f))
        return sum(map(self._smallest_value, inline)) + self.flexible

    def _smallest_value(self, field: MessageField) -> int:
        if field.kind in FIXED_FORMATS:
            return struct.calcsize(">" + FIXED_FORMATS[field.kind])
        if field.kind == "struct":
            return 1 if self.is_nullable(field) else self._smallest_struct(cast("type[MessageStruct]", field.element))
        if self.is_compact(field):
            return 1
        return 2 if field.kind == "string" else 4


def element_field(array: MessageField) -> MessageField:
    """A field with the type of the elements of `array`. The elements must be of a wire type, not structs."""
    assert isinstance(array.element, str)
    return MessageField(array.element, "0+", None, flexible=None if array.flexible is None else str(array.flexible))


def is_numbers(array: MessageField) -> bool:
    """True if all elements can be packed and unpacked with one struct."""
    return isinstance(array.element, str) and array.element in FIXED_FORMATS and array.element != "uuid"


def has_records(cls: type[MessageStruct]) -> bool:
    """True if the struct, or a struct inside it, has a `records` field."""
    fields = cls.__schema__.fields
    inner = [f.element for f in fields if f.element is not None and not isinstance(f.element, str)]
    return any(f.kind == "records" for f in fields) or any(map(has_records, inner))
