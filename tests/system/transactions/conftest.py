"""An embedded broker per module, and topic names that no two tests share."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from barnabas.testing import EmbeddedBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    with EmbeddedBroker(settings) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"txn-topic-{next(_numbers)}"
