"""The state machine of a partition of `__mirror_state`: links, states of mirror partitions, and their fencing."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.server.coordination.operation import WriteOperation
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.links.coordination.shard import LinkShard
from barnabas.server.links.coordination.values import STOPPED, MirrorId, MirrorStored, StoredLink

PARIS = StoredLink(
    "paris", "kafka-1:9092", (("sasl.jaas.config", "x"),), ("orders.*",), (), (".*",), source_cluster_id="P"
)
KEY = MirrorId("paris", UUID(int=7), 0)
MIRRORING = MirrorStored(3, 1, 5, is_aligned=True)


class Played:
    """A shard whose records go through the log's format, as a replay would read them."""

    def __init__(self) -> None:
        self.shard = LinkShard(Timeline())
        self.log: list[Any] = []

    def do(self, method: str, *arguments: Any) -> Any:
        op = WriteOperation(1_000, random.Random(0))
        result = getattr(self.shard, method)(op, *arguments)
        for record in op.records:
            self.log.append(self.shard.log_format.encode(record))
            self.apply(self.shard, self.log[-1])
        return result

    def apply(self, shard: LinkShard, encoded: Any) -> None:
        decoded = shard.log_format.decode(encoded)
        assert decoded is not None
        shard.apply(decoded, len(self.log), -1)

    def replayed(self) -> LinkShard:
        shard = LinkShard(Timeline())
        for encoded in self.log:
            self.apply(shard, encoded)
        return shard


def refused(played: Played, code: ErrorCode, method: str, *arguments: Any) -> None:
    before = len(played.log)
    with pytest.raises(KafkaError) as error:
        played.do(method, *arguments)
    assert error.value.code is code
    assert len(played.log) == before


def test_a_link_is_created_once_and_survives_a_replay() -> None:
    played = Played()
    assert played.do("create", PARIS) == replace(PARIS, version=1)
    refused(played, ErrorCode.DUPLICATE_RESOURCE, "create", PARIS)
    assert played.replayed().links.snapshot() == {"paris": replace(PARIS, version=1)}


def test_a_changed_link_keeps_its_source_cluster() -> None:
    played = Played()
    refused(played, ErrorCode.RESOURCE_NOT_FOUND, "alter", PARIS)
    played.do("create", PARIS)
    moved = replace(PARIS, bootstrap_servers="kafka-9:9092", source_cluster_id=None)
    assert played.do("alter", moved) == replace(moved, version=2, source_cluster_id="P")
    refused(played, ErrorCode.INVALID_REQUEST, "alter", replace(PARIS, source_cluster_id="Q"))


def test_reading_fences_earlier_leaders() -> None:
    played = Played()
    played.do("create", PARIS)
    assert played.do("read", KEY, 5) == MirrorStored()
    assert played.do("read", KEY, 6) == MirrorStored(leader_epoch=5)
    refused(played, ErrorCode.FENCED_LEADER_EPOCH, "read", KEY, 5)
    refused(played, ErrorCode.FENCED_LEADER_EPOCH, "write", KEY, MIRRORING)
    played.do("write", KEY, replace(MIRRORING, leader_epoch=6))
    assert played.replayed().mirrors.snapshot() == {KEY: replace(MIRRORING, leader_epoch=6)}


def test_a_late_write_is_fenced_and_a_repeated_one_changes_nothing() -> None:
    played = Played()
    played.do("create", PARIS)
    played.do("read", KEY, 5)
    played.do("write", KEY, MIRRORING)
    size = len(played.log)
    played.do("write", KEY, MIRRORING)
    assert len(played.log) == size
    refused(played, ErrorCode.FENCED_STATE_EPOCH, "write", KEY, replace(MIRRORING, state=5))
    played.do("write", KEY, replace(MIRRORING, state=5, state_epoch=2))
    assert played.shard.mirrors[KEY].state == 5


def exists(_topic: UUID) -> bool:
    return True


def test_a_link_with_mirrors_cannot_be_deleted() -> None:
    played = Played()
    refused(played, ErrorCode.RESOURCE_NOT_FOUND, "delete", "paris", exists)
    played.do("create", PARIS)
    played.do("write", KEY, MIRRORING)
    refused(played, ErrorCode.INVALID_REQUEST, "delete", "paris", exists)
    stopped = replace(MIRRORING, state=STOPPED, state_epoch=2, position_epoch=4, position_offset=100)
    played.do("write", KEY, stopped)
    played.do("delete", "paris", exists)
    after = played.replayed()
    assert not after.links.snapshot() and not after.mirrors.snapshot()
    refused(played, ErrorCode.RESOURCE_NOT_FOUND, "write", KEY, MIRRORING)


def test_mirrors_of_deleted_topics_do_not_hold_a_link() -> None:
    played = Played()
    played.do("create", PARIS)
    played.do("write", KEY, MIRRORING)
    played.do("delete", "paris", lambda topic: topic != KEY.topic_id)
    assert not played.replayed().mirrors.snapshot()


def test_the_states_of_deleted_topics_are_forgotten() -> None:
    played = Played()
    played.do("create", PARIS)
    played.do("write", KEY, MIRRORING)
    other = MirrorId("paris", UUID(int=8), 0)
    played.do("write", other, MIRRORING)
    played.do("forget", "paris", frozenset({KEY.topic_id}))
    assert played.replayed().mirrors.snapshot() == {other: MIRRORING}


def test_passwords_are_not_logged() -> None:
    assert "'x'" not in repr(_value_of_link())


def _value_of_link() -> Any:
    shard, op = LinkShard(Timeline()), WriteOperation(1_000, random.Random(0))
    shard.create(op, PARIS)
    return op.records[0].value
