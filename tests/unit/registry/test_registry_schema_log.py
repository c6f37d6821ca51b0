"""The log of schemas on a Kafka topic: what an append says when the change cannot be read back."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.registry import schema_log
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.schema_log import KafkaSchemaLog


@pytest.mark.parametrize(("stable", "seen"), [(3, "its last stable offset is 3"), (None, "no broker has answered")])
def test_a_change_that_is_not_readable_in_time_is_named(
    monkeypatch: pytest.MonkeyPatch, stable: int | None, seen: str
) -> None:
    """Its transaction is committed, but the last stable offset does not reach it; or the leader does not answer."""

    async def offset(which: int) -> int:
        if stable is None:
            raise TimeoutError
        return stable

    async def read_back() -> None:
        log = KafkaSchemaLog({"bootstrap.servers": "127.0.0.1:1"})
        monkeypatch.setattr(log, "_offset", offset)
        try:
            await log._read_back(9, lambda record: None)
        finally:
            await log.close()

    monkeypatch.setattr(schema_log, "_CHANGE_TIMEOUT_MS", 5)
    with pytest.raises(RegistryError, match=r"is written to _schemas.*it ends at offset 9, and " + seen) as raised:
        asyncio.run(read_back())
    assert raised.value.code == Code.OPERATION_TIMEOUT
