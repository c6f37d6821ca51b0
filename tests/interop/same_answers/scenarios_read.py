"""Table: scenarios about reading and deleting records. Each is played to both brokers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.wire.messages.fetch import FetchRequest
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.interop.same_answers.asking import T, fetch, list_ends
from tests.interop.same_answers.talk import Talk, batch

NOWHERE = UUID(int=0xDEAD)


def fetch_answers(talk: Talk) -> None:
    here = talk.topic("here", 3)
    here_id = talk.topic_id(here)
    talk.fill(here, *(batch(f"v{i}" * 20, "w" * 50, at=T + i) for i in range(5)))
    talk.fill(here, batch("p1", at=T), partition=1)
    for version in range(4, 13):
        talk.ask("from 0", fetch(here, 0), version)
    for version in range(13, 18):
        talk.ask("by id", fetch(here_id, 0), version)
    for offset in (-1, -2, 1, 3, 9, 10, 11, 1 << 40):
        talk.each(f"from {offset}", fetch(here, offset), (4, 7, 11, 12))
    for limit in (0, 1, 100, 200, 210, 420, -1):
        talk.ask(f"partition limit {limit}", fetch(here, 0, max_bytes=limit), 11)
        talk.ask(f"total limit {limit}", fetch(here, 0, total=limit), 11)
        talk.ask(f"total limit {limit}, two partitions", fetch(here, 0, total=limit, more=(1,)), 11)
        talk.ask(f"partition limit {limit}, two partitions", fetch(here, 0, max_bytes=limit, more=(1,)), 11)
    for epoch in (-1, 0, 1, 9):
        talk.ask(f"current epoch {epoch}", fetch(here, 0, epoch=epoch), 11)
        talk.ask(f"current epoch {epoch}", fetch(here_id, 0, epoch=epoch), 16)
        talk.ask(f"last fetched epoch {epoch}", fetch(here, 10, last_epoch=epoch), 12)
        talk.ask(f"last fetched epoch {epoch}, at 3", fetch(here, 3, last_epoch=epoch), 12)
    talk.each("read_committed", fetch(here, 0, isolation=1), (4, 11, 12))
    talk.each("isolation 7", fetch(here, 0, isolation=7), (11,))
    talk.each("unknown partition", fetch(here, 0, partition=9), (4, 11, 12))
    talk.each("unknown topic", fetch(talk.name("missing"), 0), (4, 11, 12))
    talk.each("bad name", fetch("a b", 0), (11,))
    talk.each("unknown id", fetch(NOWHERE, 0), (13, 16))
    talk.each("no id", fetch(NO_TOPIC_ID, 0), (13, 16))
    talk.each("unknown partition by id", fetch(here_id, 0, partition=9), (13, 16))
    talk.each("nothing", fetch(here, 0, partition=-99), (4, 11, 12))
    talk.each("an error does not wait", fetch(talk.name("missing"), 0, wait_ms=15_000), (11,))
    talk.each("data does not wait", fetch(here, 9, wait_ms=15_000), (11,))
    talk.each("min bytes over the limit", fetch(here, 0, wait_ms=15_000, min_bytes=1 << 30, total=300), (11,))
    talk.each("waits", fetch(here, 10, wait_ms=50), (4, 11))
    talk.each("negative wait", fetch(here, 10, wait_ms=-5), (11,))
    talk.each("min bytes 0", fetch(here, 10, wait_ms=15_000, min_bytes=0), (11,))
    talk.each("min bytes negative", fetch(here, 10, wait_ms=15_000, min_bytes=-3), (11,))
    talk.each("a partition twice", fetch(here, 0, more=(0,)), (11, 12))
    follower = fetch(here, 0)
    follower.replica_id = 5
    talk.each("as a follower", follower, (11,))
    debugger = fetch(here, 0)
    debugger.replica_id = -2
    talk.each("as a debugger", debugger, (11,))


def fetch_sessions(talk: Talk) -> None:
    here = talk.topic("here", 3)
    here_id = talk.topic_id(here)
    talk.fill(here, batch("a", at=T))

    def ask(label: str, request: FetchRequest, version: int = 11) -> Any:
        response = talk.quietly(request, version)
        talk.call_it(response.session_id or None, "session")
        talk.note(label, talk.plain(response))
        return response

    for topic, version in ((here, 11), (here_id, 16)):
        talk.forget("session")
        first = ask(f"new v{version}", fetch(topic, 0, session=(0, 0), more=(1, 2)), version)
        s = first.session_id
        ask("the same again", fetch(topic, 0, session=(s, 1), partition=-99), version)
        ask("from 1", fetch(topic, 1, session=(s, 2)), version)
        ask("nothing new", fetch(topic, 1, session=(s, 3), partition=-99), version)
        talk.fill(here, batch("b", at=T), partition=1)
        ask("new in partition 1", fetch(topic, 1, session=(s, 4), partition=-99), version)
        ask("wrong epoch", fetch(topic, 1, session=(s, 9), partition=-99), version)
        ask("forgotten", fetch(topic, 1, session=(s, 5), partition=-99, forget=[1]), version)
        ask("a strange partition joins", fetch(topic, 0, session=(s, 6), partition=77), version)
        ask("it is still unknown", fetch(topic, 0, session=(s, 7), partition=-99), version)
        ask("out of range", fetch(topic, 99, session=(s, 8)), version)
        ask("still out of range", fetch(topic, 99, session=(s, 9), partition=-99), version)
        ask("the other naming", fetch(here if version == 16 else here_id, 0, session=(s, 10)), 27 - version)
        ask("unknown session", fetch(topic, 0, session=(123456789, 1)), version)
        ask("no session, epoch 5", fetch(topic, 0, session=(0, 5)), version)
        ask("replaced", fetch(topic, 0, session=(s, 0)), version)
        ask("the old one", fetch(topic, 0, session=(s, 11)), version)
        ask("closing one", fetch(topic, 0, session=(s, -1)), version)
        ask("negative epoch", fetch(topic, 0, session=(s, -7)), version)
        ask("new and empty", fetch(topic, 0, session=(0, 0), partition=-99), version)
        ask("new with unknown", fetch(topic, 0, session=(0, 0), partition=9), version)
    gone = talk.topic("gone")
    gone_id = talk.topic_id(gone)
    talk.forget("session")
    s = ask("session on a topic", fetch(gone_id, 0, session=(0, 0)), 16).session_id
    by_name = talk.quietly(fetch(gone, 0, session=(0, 0)), 11).session_id
    talk.delete(gone)
    wanted = fetch(gone_id, 0, session=(s, 1), partition=-99)
    response = talk.quietly(wanted, 16)
    talk.note("topic deleted, by id", talk.plain(response))
    talk.call_it(by_name, "session")
    ask("topic deleted, by name", fetch(gone, 0, session=(by_name, 1), partition=-99), 11)


def list_offsets(talk: Talk) -> None:
    here, empty = talk.topic("here"), talk.topic("empty")
    talk.fill(here, batch("a", "b", at=T), batch("c", "d", at=T + 1000), batch("e", at=T + 500))

    def ask(
        label: str,
        timestamp: int,
        versions: tuple[int, ...],
        *,
        topic: str = here,
        partition: int = 0,
        epoch: int = -1,
        isolation: int = 0,
        replica: int = -1,
    ) -> None:
        for version in versions:
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
            request = ListOffsetsRequest(
                replica_id=replica,
                isolation_level=isolation if version >= 2 else 0,
                topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
                timeout_ms=5000,
            )
            talk.ask(label, request, version)

    every = tuple(range(1, 12))
    for special in range(-1, -9, -1):
        ask(f"special {special}", special, every)
        ask(f"special {special} of an empty one", special, (1, 7, 8, 9, 11), topic=empty)
    for at in (0, T - 1, T, T + 1, T + 2, T + 500, T + 999, T + 1000, T + 1001, T + 1002, 1 << 62):
        ask(f"time {at - T}", at, (1, 5, 11))
    ask("time in an empty one", T, (1, 11), topic=empty)
    ask("unknown topic", -1, (1, 5, 11), topic=talk.name("missing"))
    ask("unknown partition", -1, (1, 5, 11), partition=5)
    for epoch in (0, 1):
        ask(f"epoch {epoch}", -1, (5, 11), epoch=epoch)
    ask("committed", -1, (5,), isolation=1)
    ask("committed max timestamp", -3, (7,), isolation=1)
    ask("isolation 9", -1, (5,), isolation=9)
    ask("replica -2", -1, (5,), replica=-2)
    ask("replica 4", -1, (5,), replica=4)
    asked = [ListOffsetsPartition(partition_index=0, timestamp=t) for t in (-1, -2)]
    twice = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=here, partitions=asked)])
    talk.each("a partition twice", twice, (1, 5))
    apart = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=here, partitions=asked[:1])] * 2)
    talk.each("a topic twice", apart, (5,))
    talk.each("nothing", ListOffsetsRequest(replica_id=-1), (1, 11))


def leader_epochs(talk: Talk) -> None:
    here, empty = talk.topic("here"), talk.topic("empty")
    talk.fill(here, batch("a", "b", at=T))

    def ask(label: str, epoch: int, current: int = -1, *, topic: str = here, partition: int = 0) -> None:
        asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        talk.each(label, request, (2, 3, 4))

    for epoch in (-2, -1, 0, 1, 99):
        ask(f"epoch {epoch}", epoch)
        ask(f"epoch {epoch} of an empty one", epoch, topic=empty)
    for current in (0, 1, 9):
        ask(f"current {current}", 0, current)
    ask("unknown topic", 0, topic=talk.name("missing"))
    ask("unknown partition", 0, partition=8)


def delete_records(talk: Talk) -> None:
    here = talk.topic("here")
    talk.group("of which there is an internal topic")
    talk.fill(here, *(batch("a", "b", at=T) for _ in range(3)))

    def ask(label: str, offset: int, *, topic: str = here, partition: int = 0, version: int = 2) -> None:
        asked = DeleteRecordsTopic(
            name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
        )
        talk.ask(label, DeleteRecordsRequest(topics=[asked], timeout_ms=9000), version)

    for offset in (-5, -2, 7, 1 << 40, 0, 3, 2, 3):
        ask(f"before {offset}", offset)
        ask(f"before {offset}", offset, version=0)
    list_ends(talk, here, "after 3")
    talk.ask("fetch what is gone", fetch(here, 0), 11)
    talk.ask("fetch what is left", fetch(here, 3), 11)
    ask("before the end", -1)
    list_ends(talk, here, "after all")
    ask("unknown topic", 0, topic=talk.name("missing"))
    ask("unknown partition", 0, partition=4)
    ask("bad name", 0, topic="a b")
    ask("internal", 0, topic="__consumer_offsets")
    compact = talk.topic("compact", cleanup_policy="compact")
    talk.fill(compact, batch("a", at=T))
    ask("compacted", 1, topic=compact)
    both = talk.topic("both", cleanup_policy="compact,delete")
    talk.fill(both, batch("a", at=T))
    ask("both policies", 1, topic=both)
    talk.ask("nothing", DeleteRecordsRequest(topics=[], timeout_ms=9000), 2)
    doubled = DeleteRecordsTopic(
        name=here, partitions=[DeleteRecordsPartition(partition_index=0, offset=o) for o in (1, 2)]
    )
    talk.ask("twice", DeleteRecordsRequest(topics=[doubled], timeout_ms=9000), 2)


SCENARIOS = (fetch_answers, fetch_sessions, list_offsets, leader_epochs, delete_records)
