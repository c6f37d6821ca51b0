"""Table: requests for records that several scenarios send."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.protocol.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.protocol.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.interop.same_answers.talk import Talk

T = 1_700_000_000_000
"""When the scenarios' records were made."""


def list_ends(talk: Talk, topic: str, label: str, partitions: int = 1) -> None:
    for special in (-2, -1):
        asked = [ListOffsetsPartition(partition_index=p, timestamp=special) for p in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
        talk.ask(f"{label}: offset {special}", request, 5)


def fetch(
    topic: str | UUID,
    offset: int,
    *,
    partition: int = 0,
    max_bytes: int = 1 << 20,
    total: int = 1 << 20,
    wait_ms: int = 0,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    forget: list[int] | None = None,
    isolation: int = 0,
    epoch: int = -1,
    last_epoch: int = -1,
    more: tuple[int, ...] = (),
) -> FetchRequest:
    def named(kind: Any, partitions: Any) -> Any:
        if isinstance(topic, UUID):
            return kind(topic_id=topic, partitions=partitions)
        return kind(topic=topic, partitions=partitions)

    partitions = [
        FetchPartition(
            partition=p,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
        )
        for p in (partition, *more)
        if p != -99
    ]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=total,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[named(FetchTopic, partitions)] if partitions else [],
        forgotten_topics_data=[named(ForgottenTopic, forget)] if forget else [],
    )
