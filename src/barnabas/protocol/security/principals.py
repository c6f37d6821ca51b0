"""Value: who is asking. Kafka's `KafkaPrincipal`: a type and a name, written `User:alice`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Principal(Struct, frozen=True, order=True):
    """The identity a connection has proved, or ANONYMOUS on a listener that asks for none."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""What Kafka calls a client of a PLAINTEXT listener."""


def parse_principal(text: str) -> Principal:
    """`User:alice` -> Principal. Raises ValueError when there is no type or no name."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not a principal: expected Type:name, for example User:alice")
    return Principal(kind, name)
