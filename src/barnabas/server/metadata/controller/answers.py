"""Value: the error of one topic, resource or partition of a request."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.metadata.controller.settings import Charge

K = TypeVar("K", bound=Hashable)


class RefusedError(KafkaError):
    """The change of one topic, resource or partition is rejected. The others of the request are not affected."""


def message_of(error: KafkaError) -> str:
    return str(error)


def check_mutation_quota(charge: Charge, partitions: int) -> None:
    """Account for partitions that are created or deleted. Raises RefusedError if the client's quota is used up."""
    if not charge(partitions):
        raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


def duplicates(keys: Iterable[K]) -> set[K]:
    """The keys that occur more than once."""
    seen: set[K] = set()
    twice: set[K] = set()
    for key in keys:
        (twice if key in seen else seen).add(key)
    return twice


def invalid_request(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
