"""Fixtures: a broker for the programs of the documentation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    settings = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.min.heartbeat.interval.ms": "100"}
    with EmbeddedBroker(settings) as broker:
        yield broker.bootstrap_servers
