"""The SASL conversations of Kafka's own tests, played over sockets to one node (`conversations/table.py`)."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.system.security.conversations.playing import play_all
from tests.system.security.conversations.table import LISTENERS, ROWS, SETTINGS, Row


@pytest.fixture(scope="module")
def seen() -> dict[str, list[str]]:
    async def main() -> dict[str, list[str]]:
        listeners = ",".join(f"{name}://localhost:0" for name in ("PLAINTEXT", *LISTENERS))
        async with AsyncEmbeddedBroker(SETTINGS, listener=listeners) as broker:
            assert broker.node is not None
            return await play_all({e.name: f"localhost:{e.port}" for e in broker.node.endpoints}, ROWS)

    return asyncio.run(main())


def test_the_table_has_at_least_as_many_conversations_as_kafka_has_tests() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len(ROWS) >= 78
    assert all(row.reason for row in ROWS if row.kafka is not None)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name[:60]) for row in ROWS])
def test_conversation(seen: dict[str, list[str]], row: Row) -> None:
    assert seen[row.name] == list(row.seen)
