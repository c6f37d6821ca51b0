"""Commits in the background: no offset that a program passed to `commit_nowait` is dropped."""

from __future__ import annotations

from typing import Any

from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import offset_commit as commits
from tests.unit.client.fake_cluster import FakeCluster

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Commits:
    """Serves OffsetCommit: the first `refused` requests fail with a retriable error."""

    def __init__(self, refused: int = 0) -> None:
        self.refused = refused
        self.accepted: list[dict[TopicPartition, int]] = []

    def __call__(self, broker: int, request: commits.OffsetCommitRequest, version: int) -> Any:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.refused else ErrorCode.NONE
        self.refused = max(self.refused - 1, 0)
        if code is ErrorCode.NONE:
            self.accepted.append(
                {
                    TopicPartition(t.name, p.partition_index): p.committed_offset
                    for t in request.topics
                    for p in t.partitions
                }
            )
        return commits.OffsetCommitResponse(
            topics=[
                commits.OffsetCommitResponseTopic(
                    name=t.name,
                    partitions=[
                        commits.OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )


def consumer(served: Commits) -> AsyncConsumer:
    fake = FakeCluster()
    fake.add_topic("a", 2)
    fake.scripts[ApiKey.OFFSET_COMMIT] = served
    made = AsyncConsumer(cluster=fake.cluster(), group_id="g", enable_auto_commit=False)
    made.assign([A0, A1])
    return made


async def test_offsets_of_a_later_commit_are_committed_after_the_one_that_runs() -> None:
    served = Commits(refused=2)
    one = consumer(served)
    one.commit_nowait({A0: 5})
    await one.poll(0)
    one.commit_nowait({A0: 7, A1: 1})
    one.commit_nowait({A0: 9})
    await one.commit({A1: 3})
    assert served.accepted[0] == {A0: 5}
    assert served.accepted[-1] == {A1: 3}
    latest: dict[TopicPartition, int] = {}
    for accepted in served.accepted:
        latest |= accepted
    assert latest == {A0: 9, A1: 3}
    assert len(served.accepted) == 3  # the two calls that came while the first was running are one request
    await one.close()


async def test_close_waits_for_the_commits_in_the_background() -> None:
    served = Commits(refused=2)
    one = consumer(served)
    one.commit_nowait({A0: 5})
    one.commit_nowait({A1: 6})
    await one.close()
    assert served.accepted == [{A0: 5, A1: 6}]
