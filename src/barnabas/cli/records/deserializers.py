"""Codec: the bytes of Kafka's own serializers as text, so that `value.deserializer=...LongDeserializer` works as in
kafka-console-consumer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

ToText = Callable[[bytes], bytes]


def _number(layout: str, name: str) -> ToText:
    fixed = Struct(layout)

    def to_text(data: bytes) -> bytes:
        if len(data) != fixed.size:
            raise ValueError(f"Size of data received by {name} is not {fixed.size}")
        return str(fixed.unpack(data)[0]).encode()

    return to_text


def _flag(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise ValueError(f"Unexpected byte received by BooleanDeserializer: {data.hex()}")
    return b"true" if data == b"\1" else b"false"


def _float(data: bytes) -> bytes:
    """The shortest text that parses to the same 32-bit number, as Java prints a float."""
    layout = Struct(">f")
    if len(data) != layout.size:
        raise ValueError("Size of data received by FloatDeserializer is not 4")
    number = layout.unpack(data)[0]
    for digits in range(1, 10):
        text = f"{number:.{digits}g}"
        if layout.pack(float(text)) == data:
            return str(float(text)).encode()
    return str(number).encode()


DESERIALIZERS: Final[Mapping[str, ToText | None]] = {
    "StringDeserializer": None,
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "ByteBufferDeserializer": None,
    "ShortDeserializer": _number(">h", "ShortDeserializer"),
    "IntegerDeserializer": _number(">i", "IntegerDeserializer"),
    "LongDeserializer": _number(">q", "LongDeserializer"),
    "FloatDeserializer": _float,
    "DoubleDeserializer": _number(">d", "DoubleDeserializer"),
    "BooleanDeserializer": _flag,
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
    "VoidDeserializer": lambda _data: b"null",
}
"""The function of each deserializer, by the name of its Java class without the package; None shows the bytes unchanged.
"""


def deserializer(class_name: str) -> ToText | None:
    """The function for `org.apache.kafka.common.serialization.LongDeserializer` or `LongDeserializer`. Raises
    ValueError if the class is unknown.
    """
    name = class_name.strip().rpartition(".")[2]
    if name not in DESERIALIZERS:
        raise ValueError(f"{class_name}: unknown deserializer; the known ones are {', '.join(DESERIALIZERS)}")
    return DESERIALIZERS[name]
