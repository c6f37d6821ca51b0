"""Script commands for offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages import (
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from tests.golden.coordination.stage import Stage
from tests.unit.server.coordination.kit import Context


async def commit(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """commit NAME t-0=5 u-1=7"""
    coordinator = await stage.start()
    name = words[0]
    version = int(options.pop("v", 9))
    request = offset_commit.OffsetCommitRequest(
        group_id=options.pop("group", "g"),
        generation_id_or_member_epoch=int(
            options.pop("generation", stage.generations.get(name, stage.epochs.get(name, -1)))
        ),
        member_id=stage.member(options.pop("member", f"@{name}")),
        group_instance_id=options.pop("instance", None),
        retention_time_ms=int(options.pop("retention", -1)),
    )
    metadata = options.pop("metadata", "")
    for target, offset in options.items():
        topic, partition = target.rsplit("-", 1)
        view = stage.catalog.by_name(topic)
        request.topics.append(
            offset_commit.OffsetCommitRequestTopic(
                name=topic,
                topic_id=view.topic_id if view else UUID(int=0),
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=int(partition), committed_offset=int(offset), committed_metadata=metadata
                    )
                ],
            )
        )

    stage.call(name, coordinator.offset_commit(Context(version), request), show_commit)


async def txn_commit(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """txn-commit PRODUCER_ID t-0=5"""
    coordinator = await stage.start()
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id=options.pop("group", "g"),
        producer_id=int(words[0]),
        generation_id=int(options.pop("generation", -1)),
        member_id=stage.member(options.pop("member", "")),
    )
    for target, offset in options.items():
        topic, partition = target.rsplit("-", 1)
        request.topics.append(
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=int(partition), committed_offset=int(offset), committed_metadata=""
                    )
                ],
            )
        )
    stage.call(f"producer {words[0]}", coordinator.txn_offset_commit(Context(3), request), show_commit)


async def end_txn(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """end-txn PRODUCER_ID commit|abort"""
    coordinator = await stage.start()
    done = coordinator.complete_transaction(0, int(words[0]), 0, 0, committed=words[1] == "commit")
    stage.call(f"producer {words[0]}", done, lambda _: f"{words[1]} marker written")


async def fetch(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """fetch t-0 t-1, or fetch all"""
    coordinator = await stage.start()
    version = int(options.get("v", 9))
    requested = None
    if words != ["all"]:
        requested = []
        for target in words:
            topic, partition = target.rsplit("-", 1)
            view = stage.catalog.by_name(topic)
            topic_id = view.topic_id if view else UUID(int=99)
            requested.append((topic, topic_id, int(partition)))
    group_id = options.get("group", "g")
    stable = options.get("stable") == "yes"
    if version >= 8:
        group = offset_fetch.OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=stage.member(options["member"]) if "member" in options else None,
            member_epoch=int(options.get("epoch", -1)),
            topics=None
            if requested is None
            else [
                offset_fetch.OffsetFetchRequestTopics(name=t, topic_id=i, partition_indexes=[p])
                for t, i, p in requested
            ],
        )
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable)
    else:
        request = offset_fetch.OffsetFetchRequest(
            group_id=group_id,
            topics=None
            if requested is None
            else [offset_fetch.OffsetFetchRequestTopic(name=t, partition_indexes=[p]) for t, _, p in requested],
        )

    def show(r: offset_fetch.OffsetFetchResponse) -> str:
        group = r.groups[0] if r.groups else r
        parts = []
        for topic in group.topics:
            for p in topic.partitions:
                code = "" if p.error_code == 0 else f" {ErrorCode(p.error_code).name}"
                note = f" {p.metadata!r}" if p.metadata else ""
                parts.append(f"{topic.name}-{p.partition_index}={p.committed_offset}{note}{code}")
        return " ".join([ErrorCode(group.error_code).name, *parts])

    stage.call("offsets", coordinator.offset_fetch(Context(version), request), show)


async def delete_offsets(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()
    request = offset_delete.OffsetDeleteRequest(group_id=options.get("group", "g"))
    for target in words:
        topic, partition = target.rsplit("-", 1)
        request.topics.append(
            offset_delete.OffsetDeleteRequestTopic(
                name=topic, partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=int(partition))]
            )
        )

    def show(r: offset_delete.OffsetDeleteResponse) -> str:
        each = [f"{t.name}-{p.partition_index}:{ErrorCode(p.error_code).name}" for t in r.topics for p in t.partitions]
        return " ".join([ErrorCode(r.error_code).name, *each])

    stage.call("admin", coordinator.offset_delete(Context(0), request), show)


def show_commit(r: Any) -> str:
    return " ".join(
        f"{t.name}-{p.partition_index}:{ErrorCode(p.error_code).name}" for t in r.topics for p in t.partitions
    )
