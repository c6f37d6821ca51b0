"""Value: the identity of a client. Kafka's `KafkaPrincipal`: a type and a name, written `User:alice`."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class KafkaPrincipal(Struct, frozen=True, order=True):
    """The identity that a connection has proved, or ANONYMOUS on a listener without authentication."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal("User", "ANONYMOUS")
"""The principal of clients on PLAINTEXT listeners, as in Kafka."""


def parse_principal(text: str) -> KafkaPrincipal:
    """Parse `User:alice`. Raises ValueError if the type or the name is missing."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"{text!r} is not a principal: expected Type:name, for example User:alice")
    return KafkaPrincipal(kind, name)
