"""Runs `async def` tests, each on an event loop of its own; and the broker that this folder's tests share.

The broker is ours, embedded; or any, named by BARNABAS_TEST_BOOTSTRAP.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from barnabas.client.blocking import Admin
from barnabas.testing.embedded import EmbeddedBroker

IMPATIENT = {
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "10",
    "group.share.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "500",
}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    given = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with EmbeddedBroker(IMPATIENT) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> Iterator[str]:
    """A topic with four partitions, gone afterwards."""
    name = f"client-{uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, 4, 1)
        yield name
        admin.delete_topics([name])
