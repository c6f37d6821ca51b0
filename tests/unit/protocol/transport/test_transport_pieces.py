"""Endpoints, limits and eager starts: the parts of protocol/transport that need no socket."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.protocol.transport.eager import start
from barnabas.protocol.transport.endpoint import (
    EndpointError,
    ListenerEndpoint,
    parse_endpoint,
    parse_endpoints,
    parse_protocol_map,
)
from barnabas.protocol.transport.limits import RequestBudget
from barnabas.protocol.transport.ports import Finished
from tests.configs import transport_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ListenerEndpoint("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://:0", ListenerEndpoint("PLAINTEXT", "", 0)),
        ("SSL://broker.example.com:9093", ListenerEndpoint("SSL", "broker.example.com", 9093, "SSL")),
        ("PLAINTEXT://[::1]:9092", ListenerEndpoint("PLAINTEXT", "::1", 9092)),
        ("INSIDE://h:1", ListenerEndpoint("INSIDE", "h", 1, "SASL_SSL")),
    ],
)
def test_endpoints_are_parsed(text: str, expected: ListenerEndpoint) -> None:
    assert parse_endpoint(text, {"INSIDE": "SASL_SSL"}) == expected


@pytest.mark.parametrize(
    "text", ["127.0.0.1:9092", "PLAINTEXT://host", "PLAINTEXT://host:99999", "OUTSIDE://h:1", "PLAINTEXT://::1:9092"]
)
def test_malformed_endpoints_raise_endpoint_error(text: str) -> None:
    with pytest.raises(EndpointError):
        parse_endpoint(text)


def test_endpoint_lists_are_parsed() -> None:
    assert [str(e) for e in parse_endpoints("PLAINTEXT://a:1, SSL://[::]:2")] == ["PLAINTEXT://a:1", "SSL://[::]:2"]
    with pytest.raises(EndpointError, match="twice"):
        parse_endpoints("PLAINTEXT://a:1,PLAINTEXT://b:2")
    assert parse_protocol_map("A:PLAINTEXT, b:sasl_ssl") == {"A": "PLAINTEXT", "B": "SASL_SSL"}
    with pytest.raises(EndpointError):
        parse_protocol_map("A:NOTHING")


def test_request_budget() -> None:
    budget = RequestBudget(transport_config(queued_max_requests=2, queued_max_request_bytes=100))
    budget.add(1, 60)
    assert (budget.spent, budget.is_exhausted, budget.free_bytes) == (False, False, 40)
    budget.add(1, 40)
    assert (budget.spent, budget.is_exhausted, budget.free_bytes) == (True, True, 0)
    budget.add(-1, -40)
    assert (budget.spent, budget.is_exhausted, budget.free_bytes) == (False, False, 40)
    budget.add(0, 300)
    assert (budget.spent, budget.is_exhausted, budget.free_bytes) == (False, True, 0)


def test_request_budget_without_a_limit_of_bytes() -> None:
    for limit in (-1, 0):
        budget = RequestBudget(transport_config(queued_max_request_bytes=limit))
        budget.add(1, 1 << 40)
        assert (budget.counts_bytes, budget.is_exhausted, budget.free_bytes) == (False, False, -1)


def test_start_runs_a_coroutine_without_suspension_to_its_end() -> None:
    async def quick() -> int:
        return 7

    outcome = start(quick())
    assert isinstance(outcome, Finished)
    assert outcome.value == 7


def test_start_raises_exceptions_from_before_the_first_suspension() -> None:
    async def bad() -> None:
        raise ValueError("now")

    with pytest.raises(ValueError, match="now"):
        start(bad())


def test_the_rest_awaits_catches_and_returns_as_usual() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        seen: list[str] = []

        async def slow() -> str:
            seen.append("before")
            seen.append(await first)
            try:
                await second
            except KeyError:
                seen.append("caught")
            await asyncio.sleep(0)
            return "end"

        rest = start(slow())
        assert not isinstance(rest, Finished)
        assert seen == ["before"]
        loop.call_soon(first.set_result, "first")
        loop.call_later(0.001, second.set_exception, KeyError())
        seen.append(await asyncio.ensure_future(rest))
        return seen

    assert asyncio.run(main()) == ["before", "first", "caught", "end"]


def test_the_rest_can_be_cancelled() -> None:
    async def main() -> bool:
        cleaned = False

        async def slow() -> None:
            nonlocal cleaned
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cleaned = True

        rest = start(slow())
        assert not isinstance(rest, Finished)
        task = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return cleaned and task.cancelled()

    assert asyncio.run(main())
