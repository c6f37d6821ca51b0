"""One embedded broker for each module, and a topic name of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import EmbeddedBroker
from tests.system.broker.wire_client import WireClient

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}"


@pytest.fixture
def connect(broker: EmbeddedBroker) -> Iterator[Callable[[], WireClient]]:
    opened: list[WireClient] = []

    def make() -> WireClient:
        opened.append(WireClient(broker.bootstrap_servers))
        return opened[-1]

    yield make
    for each in opened:
        each.socket.close()
