"""Shell: sends admin requests to the right brokers, and turns responses into a value or an error for each item."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, TypeVar

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.coordinators import CoordinatorType
from barnabas.core.errors import ErrorCode, KafkaError, error_code

I = TypeVar("I", bound=Hashable)  # noqa: E741  # an item: a topic name, a resource, a group id
V = TypeVar("V")

Item = tuple[I, int, str | None, V]
"""The item of the request, its error code, its error message, its value."""

_TRY_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED})


def names_of(names: Iterable[str]) -> list[str]:
    """The names as a list, each once."""
    return list(dict.fromkeys(names))


def item_error(code: int, message: str | None, what: str) -> KafkaError:
    """The error of one item, with the broker's error message if there is one."""
    error = error_code(code)
    return KafkaError(error, f"{what}: {message or error.message}")


async def ask_controller(
    cluster: Cluster,
    items: Iterable[I],
    build: Callable[[list[I]], Any],
    parse: Callable[[Any], Iterable[Item[I, V]]],
    *,
    what: str,
    deadline: float,
) -> dict[I, V | KafkaError]:
    """Send one request to the controller for many items, and parse a value or an error for each item.

    Items that failed with NOT_CONTROLLER or THROTTLING_QUOTA_EXCEEDED are sent again until the deadline.
    """
    results: dict[I, V | KafkaError] = {}
    left = list(items)
    attempt = 0
    while left:

        async def send(part: list[I] = left) -> Any:
            return await cluster.send_controller(build(part), deadline=deadline)

        response = await cluster.retrying(what, send, deadline=deadline)
        again: dict[I, KafkaError] = {}
        for item, code, message, value in parse(response):
            if code == 0:
                results[item] = value
                continue
            error = item_error(code, message, f"{what} {item!r}" if isinstance(item, str) else what)
            if error.code in _TRY_AGAIN:
                again[item] = error
            else:
                results[item] = error
        left = list(again)
        if left and cluster.now() >= deadline:
            results.update(again)
            break
        if left:
            if any(error.code is ErrorCode.NOT_CONTROLLER for error in again.values()):
                await cluster.refresh(deadline=deadline)
            await cluster.backoff(attempt, deadline)
            attempt += 1
    return results


async def ask_coordinators(
    cluster: Cluster,
    group_ids: Iterable[str],
    build: Callable[[list[str]], Any],
    parse: Callable[[Any], Iterable[Item[str, V]]],
    *,
    what: str,
    deadline: float,
) -> dict[str, V | KafkaError]:
    """Send one request for each group to the group's coordinator, and retry retriable errors until the deadline."""
    results: dict[str, V | KafkaError] = {}
    for group_id in dict.fromkeys(group_ids):

        async def attempt(group_id: str = group_id) -> V:
            try:
                response = await cluster.send_coordinator(
                    CoordinatorType.GROUP, group_id, build([group_id]), deadline=deadline
                )
                for item, code, message, value in parse(response):
                    if item == group_id:
                        if code == 0:
                            return value
                        raise item_error(code, message, f"{what} {group_id!r}")
            except KafkaError as error:
                cluster.coordinators.note_error(CoordinatorType.GROUP, group_id, error.code)
                raise
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: no response for group {group_id!r}.")

        try:
            results[group_id] = await cluster.retrying(f"{what} {group_id!r}", attempt, deadline=deadline)
        except KafkaError as error:
            results[group_id] = error
    return results


def value_or_raise(results: Mapping[I, V | KafkaError], item: I) -> V:
    """The value of one item. Raises the error of the item if the item failed."""
    result = results[item]
    if isinstance(result, KafkaError):
        raise result
    return result
