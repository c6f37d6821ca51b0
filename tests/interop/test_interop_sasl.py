"""The SASL conversations, played to Apache Kafka: it does the same as our node, but where the table names a reason."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.testing.ports import free_ports
from tests.interop.apache_kafka import ApacheKafka
from tests.system.security.conversations.playing import play_all
from tests.system.security.conversations.table import LISTENERS, ROWS, SETTINGS, Row

PLAYED = [row for row in ROWS if row.kafka != ()]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, free_ports(len(LISTENERS)), strict=True)}
    more = [f"{name}://{address}" for name, address in addresses.items()]
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings, more_listeners=more).running() as kafka:
        yield asyncio.run(play_all({"PLAINTEXT": kafka.bootstrap, **addresses}, PLAYED))


@pytest.mark.interop
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name[:60]) for row in PLAYED])
def test_conversation_with_kafka(seen: dict[str, list[str]], row: Row) -> None:
    assert seen[row.name] == list(row.seen if row.kafka is None else row.kafka)
