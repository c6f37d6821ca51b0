"""Fixtures of the interop ring: one real broker for the session, and the jars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/interop/" in item.nodeid:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ["group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=4"]
    with BrokerProcess(tmp_path_factory.mktemp("interop") / "data", settings=settings) as running:
        yield running


@pytest.fixture
def broker_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"
