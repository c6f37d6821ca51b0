"""Above which remote segment a follower continues: at the leader's local start, or above all copies (KIP-1023)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.server.replication.config import ReplicationConfig
from barnabas.server.replication.partition import Partition
from barnabas.server.replication.ports import LocalStart, PeerChannel
from barnabas.server.replication.rebuilding import rebuild
from barnabas.server.replication.rules.follower import TieredRequest
from barnabas.server.storage.values import EpochEndOffset
from barnabas.server.tiering.values import CopiedState, RemoteSegment
from tests.unit.server.tiering.segments import segment

SEGMENTS = [segment(1, 0, 9), segment(2, 10, 19), segment(3, 20, 29)]


class Channel:
    """A leader with records 0 to 39, of which those from 10 on are local and those up to 29 are copied."""

    def __init__(self, pending: int, end_offset: int) -> None:
        self.pending = pending
        self.end_offset = end_offset

    async def list_local_start(self, *_: object) -> LocalStart:
        return LocalStart(ErrorCode.NONE, 0, 10)

    async def list_pending_upload(self, *_: object) -> int:
        return self.pending

    async def epoch_end(self, _leader: int, _name: object, epoch: int, _config: object) -> EpochEndOffset:
        return EpochEndOffset(epoch, self.end_offset)


class Tiered:
    """The copies."""

    def candidates(self, _partition: object, start: int) -> list[tuple[RemoteSegment, int]]:
        return [(s, s.leader_epochs[-1].epoch) for s in SEGMENTS if s.start_offset <= start <= s.end_offset + 1]

    async def read_state(self, found: RemoteSegment) -> CopiedState:
        return CopiedState(found.end_offset + 1, found.leader_epochs, ())


def continued_at(
    *,
    enabled: bool = True,
    compact: bool = False,
    log_end_offset: int = 0,
    pending: int = 30,
    end_offset: int = 40,
) -> int:
    """Where the follower continues."""
    found: list[int] = []
    partition = SimpleNamespace(
        name=TopicPartition("t", 0),
        remote=SEGMENTS[0].id.partition,
        context=SimpleNamespace(tiered=Tiered()),
        log=SimpleNamespace(
            config=SimpleNamespace(tiered=True, compact=compact), log_start_offset=0, log_end_offset=log_end_offset
        ),
        on_tiered=lambda _request, _start, state, _now_ms: found.append(state.end_offset),
    )
    config: Any = SimpleNamespace(follower_fetch_last_tiered_offset_enable=enabled)
    asyncio.run(
        rebuild(
            cast("Partition", partition),
            TieredRequest(5),
            1,
            cast("PeerChannel", Channel(pending, end_offset)),
            cast("ReplicationConfig", config),
            lambda: 0,
        )
    )
    (offset,) = found
    return offset


def test_an_empty_follower_continues_above_all_copies() -> None:
    assert continued_at() == 30


@pytest.mark.parametrize(
    "case",
    [
        {"enabled": False},
        {"compact": True},
        {"log_end_offset": 5},
        {"pending": -1},
        {"end_offset": 25},
    ],
    ids=["disabled", "compacted", "not empty", "unknown to the leader", "not the leader's records"],
)
def test_otherwise_it_continues_at_the_local_start(case: dict[str, Any]) -> None:
    assert continued_at(**case) == 10
