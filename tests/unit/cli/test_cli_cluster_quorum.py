"""What `barnabas cluster quorum` shows of a voter that is down, and of a quorum without a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from barnabas.cli.cluster import cluster
from barnabas.client.admin.quorum import QuorumDescription, QuorumReplica
from barnabas.client.errors import RequestTimeoutError


def replica(node_id: int, end: int) -> QuorumReplica:
    return QuorumReplica(node_id, UUID(int=node_id), end, last_fetch_ms=-1, last_caught_up_ms=-1)


class Admin:
    """Describes one quorum, or times out."""

    def __init__(self, quorum: QuorumDescription | None) -> None:
        self.quorum = quorum

    async def describe_quorum(self, *, timeout_ms: float) -> QuorumDescription:
        if self.quorum is None:
            raise RequestTimeoutError(f"no answer within {timeout_ms} ms")
        return self.quorum


def use(monkeypatch: pytest.MonkeyPatch, quorum: QuorumDescription | None) -> None:
    def run_admin(_: str, command: Callable[[Admin], Awaitable[Any]], __: object) -> Any:
        async def answer() -> Any:
            return await command(Admin(quorum))

        return asyncio.run(answer())

    monkeypatch.setattr(cluster, "run_admin", run_admin)


def test_the_log_of_a_voter_that_has_not_fetched_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, QuorumDescription(2, 7, 14, (replica(1, -1), replica(2, 15)), (replica(4, 12),)))
    cluster.quorum()
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()] == [
        ["NODE", "ROLE", "LOG", "END", "LAG"],
        ["1", "voter", "unknown", "unknown"],
        ["2", "leader", "15", "0"],
        ["4", "observer", "12", "3"],
    ]
    assert "leader 2 in epoch 7; high watermark 14" in said.err
    assert "it may be down" in said.err


def test_a_quorum_without_a_majority_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, None)
    with pytest.raises(RequestTimeoutError, match=r"No active controller answered within 10 s.*/readyz"):
        cluster.quorum()
