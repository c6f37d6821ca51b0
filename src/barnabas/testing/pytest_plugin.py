"""Shell: a pytest plugin that provides the fixtures below. pytest finds the plugin wherever this package is installed.

def test_orders(barnabas_broker):
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from barnabas.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def barnabas_broker() -> Iterator[EmbeddedBroker]:
    """One embedded broker for the whole session. Tests share it: use topic and group names of your own."""
    from barnabas.testing.embedded import EmbeddedBroker

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def barnabas_broker_factory() -> Iterator[Callable[..., EmbeddedBroker]]:
    """Makes embedded brokers for one test: `factory(config={"num.partitions": "3"})`; stopped when the test ends."""
    from barnabas.testing.embedded import EmbeddedBroker

    started: list[EmbeddedBroker] = []

    def make(*args: Any, **options: Any) -> EmbeddedBroker:
        broker = EmbeddedBroker(*args, **options).start()
        started.append(broker)
        return broker

    yield make
    for broker in reversed(started):
        broker.stop()
