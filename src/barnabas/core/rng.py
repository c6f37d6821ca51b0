"""Port: the source of randomness. State machines take an `Rng` as an argument; a simulation passes a seeded one."""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")


class Rng(Protocol):
    """The methods of `random.Random` that Barnabas uses."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int | None = None) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...

    def choice(self, seq: Sequence[T]) -> T: ...

    def shuffle(self, x: MutableSequence[Any]) -> None: ...


def system_rng() -> Rng:
    """A generator with an unpredictable seed from the operating system."""
    return random.Random(random.SystemRandom().getrandbits(128))


def random_uuid(rng: Rng) -> UUID:
    """A version-4 UUID whose text form does not begin with a dash (Kafka avoids a dash, which command lines take for an
    option)."""
    while True:
        value = UUID(int=rng.getrandbits(128), version=4)
        if value.bytes[0] >> 2 != 62:  # base64url digit 62 is '-'
            return value


def secure_rng() -> Rng:
    """The operating system's generator, for nonces and keys: earlier numbers do not tell the next one."""
    return random.SystemRandom()
