"""A topic as the log of a shared state: what an append says when the change cannot be read back."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.cluster.cluster import Cluster
from barnabas.client.options import ClusterConfig
from barnabas.client.single_writer import topic as topic_log
from barnabas.client.single_writer.topic import TopicLog, TopicLogOptions, TopicLogTimeoutError


class Texts:
    """A codec of records that are texts without keys."""

    def decode(self, key: bytes, value: bytes | None) -> str | None:
        return None if value is None else value.decode()

    def encode(self, record: str) -> tuple[bytes, bytes | None]:
        return b"", record.encode()


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
        async with Cluster(ClusterConfig.of(bootstrap_servers="127.0.0.1:1")) as cluster:
            log: TopicLog[str] = TopicLog(cluster, TopicLogOptions("state", "writer"), Texts())
            monkeypatch.setattr(log, "_offset", offset)
            await log._read_back(9, lambda record: None)

    monkeypatch.setattr(topic_log, "CHANGE_TIMEOUT_MS", 5)
    with pytest.raises(TopicLogTimeoutError, match=r"is written to state.*it ends at offset 9, and " + seen):
        asyncio.run(read_back())
