"""Value: a refusal, before it is put into the field of a response."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from barnabas.core.errors import ErrorCode, KafkaError

K = TypeVar("K", bound=Hashable)


class RefusedError(KafkaError):
    """One topic, resource or partition cannot have what it asks for; the others of the request may."""


def message_of(error: KafkaError) -> str:
    return str(error)


def duplicates(keys: Iterable[K]) -> set[K]:
    """Those that occur more than once."""
    seen: set[K] = set()
    twice: set[K] = set()
    for key in keys:
        (twice if key in seen else seen).add(key)
    return twice


def invalid_request(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
