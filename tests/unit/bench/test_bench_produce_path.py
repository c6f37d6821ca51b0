"""The work of one request, counted: a change that makes every request dearer does not go unnoticed."""

from __future__ import annotations

import asyncio

from bench.authorizer import AUTHORIZING
from bench.produce_path import Counted, count, open_path

from barnabas import AsyncAdmin
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation

PRODUCE_CALLS_MAX = 122
FETCH_CALLS_MAX = 96
TLS_CALLS_MAX = 17
AUTHORIZED_CALLS_MAX = 1
"""Python calls of one request, and those that TLS and an authorizer add. Raise a limit only for something that is worth
its price for every request: 100 calls take about 40 us. `python -m bench.produce_path` lists the calls by part."""


async def _counted() -> tuple[Counted, Counted, int, int]:
    async with open_path() as path:
        frames = path.produce_frame(), path.fetch_frame()
        produced, fetched = (count(lambda frame=frame: path.send(frame)) for frame in frames)
        return produced, fetched, path.send(path.produce_frame()), path.send(path.fetch_frame()) - len(path.batch)


def test_a_request_makes_few_calls() -> None:
    produced, fetched, produce_response, fetch_response = asyncio.run(_counted())
    assert 0 < produce_response < 100, "the batches are appended"
    assert 0 < fetch_response < 200, "the fetch returns one batch"
    assert produced.calls.total() <= PRODUCE_CALLS_MAX, produced.calls
    assert fetched.calls.total() <= FETCH_CALLS_MAX, fetched.calls


async def _counted_with_tls() -> tuple[Counted, int]:
    async with open_path(tls=True) as path:
        frame = path.produce_frame()
        return count(lambda: path.send(frame)), path.send(path.produce_frame())


def test_tls_adds_few_calls_to_a_request() -> None:
    produced, response = asyncio.run(_counted_with_tls())
    assert 0 < response < 200, "the batch is appended"
    assert produced.calls.total() <= PRODUCE_CALLS_MAX + TLS_CALLS_MAX, produced.calls


async def _counted_with_an_authorizer() -> Counted:
    async def allow(admin: AsyncAdmin) -> None:
        topic, literal, allowed = AclResourceType.TOPIC, PatternType.LITERAL, AclPermissionType.ALLOW
        everyone = AclBinding(topic, "bench", literal, "User:*", "*", AclOperation.ALL, allowed)
        await admin.create_acls([everyone])

    async with open_path(settings=AUTHORIZING, prepare=allow) as path:
        frame = path.produce_frame()
        return count(lambda: path.send(frame))


def test_an_authorizer_adds_one_call_to_a_request_that_it_has_allowed_before() -> None:
    produced = asyncio.run(_counted_with_an_authorizer())
    assert produced.calls.total() <= PRODUCE_CALLS_MAX + AUTHORIZED_CALLS_MAX, produced.calls
