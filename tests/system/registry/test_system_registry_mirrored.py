"""Schemas that are mirrored to another cluster: with their ids, read-only there, and writable after the cut-over."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import Link
from barnabas.client.links import cutover
from barnabas.registry import RegistryClient, RegistryError, Schema
from barnabas.registry.errors import Code
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.mirror.mirrors import end_of, mirroring, until
from tests.system.registry.conftest import RunningRegistry

FIRST, SECOND, THIRD = (Schema(f'{{"type":"enum","name":"E","symbols":["{letter}"]}}') for letter in "ABC")


def register(url: str) -> dict[str, int]:
    """Register two schemas; return the ids of all subjects."""
    client = RegistryClient(url)
    client.register("orders-value", FIRST)
    client.register("payments-value", SECOND)
    return ids(url)


def ids(url: str) -> dict[str, int]:
    client = RegistryClient(url)
    return {subject: client.latest(subject).id for subject in client.subjects()}


def check_read_only(url: str, expected: dict[str, int], message: str) -> None:
    client = RegistryClient(url)
    assert ids(url) == expected
    assert client.schema(expected["payments-value"]) == SECOND
    assert client.register("orders-value", FIRST).id == expected["orders-value"], "it is registered already"
    with pytest.raises(RegistryError, match=message) as refused:
        client.register("orders-key", THIRD)
    assert refused.value.code == Code.OPERATION_NOT_PERMITTED
    assert ids(url) == expected


def check_writable(url: str, expected: dict[str, int]) -> None:
    registered = RegistryClient(url).register("orders-key", THIRD)
    assert registered.id == max(expected.values()) + 1
    assert ids(url) == expected | {"orders-key": registered.id}


def test_a_link_mirrors_the_schemas_with_their_ids() -> None:
    with EmbeddedBroker() as paris, EmbeddedBroker() as berlin:
        with RunningRegistry(paris.bootstrap_servers) as original:
            expected = register(original.url)
        asyncio.run(_link(paris.bootstrap_servers, berlin.bootstrap_servers))
        with RunningRegistry(berlin.bootstrap_servers) as mirrored:
            check_read_only(mirrored.url, expected, "takes no writes.* mirror")
            asyncio.run(_promote(berlin.bootstrap_servers))
            check_writable(mirrored.url, expected)


async def _link(source: str, target: str) -> None:
    async with AsyncAdmin(bootstrap_servers=target) as admin:
        settings = {"mirror.metadata.refresh.interval.ms": "200"}
        await admin.create_link(Link("paris", source, topics=("_schemas",), settings=settings))

        async def has_all() -> bool:
            statuses = await admin.describe_mirrors(["paris"])
            return bool(statuses) and all(one.source_high_watermark > 0 and one.lag == 0 for one in statuses)

        await until(has_all, "the schemas are mirrored")


async def _promote(target: str) -> None:
    async with AsyncAdmin(bootstrap_servers=target) as admin:
        await cutover.promote(admin, "paris", (), timeout_s=60, progress=lambda _: None)


def test_a_mirror_copies_the_schemas_with_their_ids() -> None:
    """As MirrorMaker does: the copy has another name, and only the registry there knows that it must not write."""
    with EmbeddedBroker() as a, EmbeddedBroker() as b:
        with RunningRegistry(a.bootstrap_servers) as original:
            expected = register(original.url)
        asyncio.run(_mirror(a.bootstrap_servers, b.bootstrap_servers))
        with RunningRegistry(b.bootstrap_servers, "A._schemas", read_only=True) as mirrored:
            check_read_only(mirrored.url, expected, r"leader\.eligibility=false")
        with RunningRegistry(b.bootstrap_servers, "A._schemas") as active:
            check_writable(active.url, expected)


async def _mirror(a: str, b: str) -> None:
    async with mirroring(a, b, {"A->B.enabled": "true", "topics": "_schemas"}) as service:

        async def has_all() -> bool:
            return await end_of(b, "A._schemas") >= 2

        await until(has_all, "the schemas are copied", service)


def test_a_read_only_registry_creates_no_topic(broker: EmbeddedBroker) -> None:
    with (
        pytest.raises(RegistryError, match="_schemas_absent does not exist"),
        RunningRegistry(broker.bootstrap_servers, "_schemas_absent", read_only=True),
    ):
        pass
