"""Two brokers with authorizers for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing.embedded import EmbeddedBroker

_SECURED = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="session")
def a() -> Iterator[str]:
    with EmbeddedBroker(_SECURED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="session")
def b() -> Iterator[str]:
    with EmbeddedBroker(_SECURED) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic() -> str:
    return f"orders-{uuid4().hex[:8]}"
