"""One embedded broker and one console for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing import EmbeddedBroker
from tests.unit.console.pages import Browser, console


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"log.retention.ms": "-1"}) as running:
        yield running


@pytest.fixture(scope="session")
def browser(broker: EmbeddedBroker) -> Iterator[Browser]:
    with console(broker.bootstrap_servers) as running:
        yield running
