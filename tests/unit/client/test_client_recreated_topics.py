"""A topic that is deleted and created again has its own positions: no record of the new topic is passed over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.client.commit_marks import add_mark, read_mark
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.errors import AcknowledgementError, NoOffsetError, OffsetOutOfRangeError, TopicReplacedError
from barnabas.client.fetching import ConsumerFetchConfig
from barnabas.client.membership.share_protocol import ShareMember
from barnabas.client.partition_reader import OffsetRange, PartitionReader
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.fetcher import AcknowledgementResult, ShareFetchConfig, ShareFetcher, _Broker
from barnabas.client.share.session import AcknowledgeType
from barnabas.client.single_writer.topic import TopicLog, TopicLogError, TopicLogOptions
from barnabas.client.values import ConsumerRecord, OffsetAndMetadata
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_TOPIC_ID, TopicIdPartition, TopicPartition
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.messages import txn_offset_commit
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.protocol.wire.messages.end_txn import EndTxnResponse
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.test_client_reader import batch
from tests.unit.client.test_client_topic_log import Texts

T0 = TopicPartition("t", 0)
SETTINGS: dict[str, Any] = {
    "group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 1
}  # fmt: skip

Read = Callable[[AsyncConsumer], Awaitable[list[bytes]]]


async def read_records(consumer: AsyncConsumer) -> list[bytes]:
    return [record.value for record in await consumer.poll(20, max_records=3)]


async def read_columns(consumer: AsyncConsumer) -> list[bytes]:
    table = await consumer.poll_arrow(20, columns=["value"])
    return [] if table is None else table.column("value").to_pylist()


def values(name: str, count: int) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(count)]


def topic(*written: list[bytes]) -> FakeCluster:
    fake = FakeCluster()
    fake.add_topic("t")
    for records in written:
        fake.log("t").put(batch(*records))
    return fake


async def until(read: Read, consumer: AsyncConsumer, count: int) -> list[bytes]:
    """Read until there are `count` records. A consumer that passes records over never returns."""
    seen: list[bytes] = []
    while len(seen) < count:
        seen += await read(consumer)
    return seen


@pytest.mark.parametrize("read", [read_records, read_columns])
@pytest.mark.parametrize("new_count", [3, 40])
@pytest.mark.parametrize("new_epoch", [0, 4])
async def test_every_record_of_the_new_topic_is_read(read: Read, new_count: int, new_epoch: int) -> None:
    """With fewer records than the old position, and with more; with the same leader epoch, and with a newer one."""
    fake = topic(values("old", 10), values("old again", 10))
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        await until(read, consumer, 20)
        fake.recreate_topic("t")
        fake.log("t").leader_epoch = new_epoch
        fake.log("t").put(batch(*values("new", new_count)))
        assert await until(read, consumer, new_count) == values("new", new_count)
        await consumer.commit()
        assert (await consumer.committed([T0]))[T0] == OffsetAndMetadata(new_count, "", new_epoch)


async def test_records_that_have_arrived_of_the_old_topic_are_returned_first() -> None:
    fake = topic(values("old", 10), values("older", 10))
    limits = SETTINGS | {"max_partition_fetch_bytes": 100}
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **limits) as consumer:
        consumer.assign([T0])
        seen = await read_records(consumer)
        while not seen:
            seen = await read_records(consumer)
        fake.recreate_topic("t")
        fake.log("t").put(batch(*values("new", 5)))
        while b"new 4" not in seen:
            seen += await read_records(consumer)
        assert seen == values("old", 10) + values("older", 10)[: len(seen) - 15] + values("new", 5)


@pytest.mark.parametrize("deletes_commits", [True, False])
async def test_a_commit_of_the_old_topic_is_no_position_of_the_new_one(deletes_commits: bool) -> None:
    """A commit may arrive after the deletion, and brokers of other makers may keep commits."""
    fake = topic(values("old", 10))
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as old:
        old.assign([T0])
        await until(read_records, old, 10)
        await old.commit({T0: 8})
        fake.recreate_topic("t", deletes_commits=deletes_commits)
        fake.log("t").put(batch(*values("new", 20)))
        await old.commit({T0: 9})
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        assert await consumer.committed([T0]) == {T0: None}
        consumer.assign([T0])
        assert await until(read_records, consumer, 20) == values("new", 20)
        await consumer.commit({T0: 12})
        assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(12)}


async def test_a_commit_of_another_client_continues_and_its_divergence_begins_anew() -> None:
    """A commit without a topic id is the position, unless the leader's epoch shows that it is of another topic."""
    fake = topic(values("a", 20))
    fake.commits[T0] = (15, 0, "")
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        assert await until(read_records, consumer, 5) == values("a", 20)[15:]
    fake.commits[T0] = (500, 3, "")
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        assert await until(read_records, consumer, 20) == values("a", 20)


async def test_a_truncated_log_continues_at_the_divergence() -> None:
    fake = topic(values("a", 10))
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        await until(read_records, consumer, 10)
        log = fake.log("t")
        log.batches, log.end, log.leader_epoch = [], 0, 1
        log.put(batch(*values("a", 6)))
        log.batches = [bytes(b[:12] + (0).to_bytes(4, "big") + b[16:]) for b in log.batches]  # of the epoch before
        log.put(batch(*values("b", 9)))
        assert await until(read_records, consumer, 9) == values("b", 9)


async def test_without_a_reset_policy_the_new_topic_has_no_offset() -> None:
    fake = topic(values("old", 10))
    async with (
        fake.cluster() as cluster,
        AsyncConsumer(cluster=cluster, **SETTINGS | {"auto_offset_reset": "none"}) as consumer,
    ):
        consumer.assign([T0])
        consumer.seek(T0, 0)
        await until(read_records, consumer, 10)
        fake.recreate_topic("t")
        with pytest.raises(NoOffsetError):
            await until(read_records, consumer, 1)


async def test_a_seek_is_of_the_topic_that_exists_then() -> None:
    fake = topic(values("old", 10))
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        await until(read_records, consumer, 10)
        fake.recreate_topic("t")
        fake.log("t").put(batch(*values("new", 5)))
        consumer.seek(T0, 3)
        assert await until(read_records, consumer, 2) == values("new", 5)[3:]


async def test_the_users_metadata_comes_back_unchanged() -> None:
    fake = topic(values("old", 10))
    own = "batch 7 [done]"
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        await until(read_records, consumer, 10)
        await consumer.commit({T0: OffsetAndMetadata(5, own)})
        assert fake.commits[T0] == (5, -1, own)
        assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(5, own)}
        await consumer.commit()
        mark = fake.commits[T0][2]
        assert mark.startswith("[topic ")
        await consumer.commit({T0: OffsetAndMetadata(5, mark)})
        assert await consumer.committed([T0]) == {T0: OffsetAndMetadata(5, mark)}


def test_a_mark_belongs_to_one_cluster_and_is_reversible() -> None:
    topic_id = FakeCluster()
    topic_id.add_topic("t")
    known = topic_id.topics["t"]
    mark = add_mark("", known, "one")
    assert read_mark(mark, "one") == ("", known)
    assert read_mark(mark, "two") == ("", NO_TOPIC_ID)  # a tool has copied the string to another cluster
    for text in ("", "x", mark, mark + mark, "x" + mark, mark + "x"):
        for cluster, written in ((None, NO_TOPIC_ID), ("one", known), ("a]\nb", known), ("one", NO_TOPIC_ID)):
            assert read_mark(add_mark(text, written, cluster), cluster)[0] == text


@pytest.mark.parametrize("metadata_max_bytes", [4096, 20])
async def test_a_transaction_commits_marked_offsets(metadata_max_bytes: int) -> None:
    """The ids come with `group_metadata`, so that offsets may be plain numbers."""
    fake = topic(values("old", 10))
    committed: list[str | None] = []

    def commit(broker_id: int, request: txn_offset_commit.TxnOffsetCommitRequest, version: int) -> Any:
        committed.append(request.topics[0].partitions[0].committed_metadata)
        code = ErrorCode.NONE if len(committed[-1] or "") <= metadata_max_bytes else ErrorCode.OFFSET_METADATA_TOO_LARGE
        answer = txn_offset_commit.TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
        topics = [txn_offset_commit.TxnOffsetCommitResponseTopic(name="t", partitions=[answer])]
        return txn_offset_commit.TxnOffsetCommitResponse(topics=topics)

    fake.scripts[ApiKey.TXN_OFFSET_COMMIT] = commit
    fake.scripts[ApiKey.ADD_OFFSETS_TO_TXN] = lambda *_: AddOffsetsToTxnResponse()
    fake.scripts[ApiKey.END_TXN] = lambda *_: EndTxnResponse()
    async with (
        fake.cluster() as cluster,
        AsyncConsumer(cluster=cluster, **SETTINGS) as consumer,
        AsyncProducer(cluster=cluster, transactional_id="tx") as producer,
    ):
        consumer.assign([T0])
        await until(read_records, consumer, 10)
        await producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ConfigError, match="The offset -1 of t-0 cannot be committed"):
            await producer.send_offsets_to_transaction({T0: -1}, consumer.group_metadata())
        await producer.send_offsets_to_transaction({T0: 5}, consumer.group_metadata())
        await producer.commit_transaction()
    mark = add_mark("", fake.topics["t"], "fake")
    assert committed == ([mark] if metadata_max_bytes > len(mark) else [mark, ""])


async def test_a_broker_that_takes_no_mark_gets_none() -> None:
    fake = topic(values("a", 10))
    fake.metadata_max_bytes = 20
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        await until(read_records, consumer, 10)
        await consumer.commit()
        await consumer.commit({T0: 7})
        assert fake.commits[T0] == (7, -1, "")
    assert len([key for _, key, _ in fake.requests if key is ApiKey.OFFSET_COMMIT]) == 3


@pytest.mark.parametrize("call", ["commit", "commit_nowait"])
async def test_a_negative_offset_is_not_committed(call: str) -> None:
    fake = topic(values("a", 10))
    async with fake.cluster() as cluster, AsyncConsumer(cluster=cluster, **SETTINGS) as consumer:
        consumer.assign([T0])
        with pytest.raises(ConfigError, match=r"The offset -1 of t-0 cannot be committed") as caught:
            result = getattr(consumer, call)({T0: -1})
            if result is not None:
                await result
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert fake.commits == {}


async def test_a_producer_reads_the_answer_to_a_request_for_the_old_topic() -> None:
    """The topic's id may be another one, or unknown, when the answer arrives."""
    fake = FakeCluster()
    fake.add_topic("t")
    async with AsyncProducer(cluster=fake.cluster(), linger_ms=0) as producer:

        def forgetful(broker_id: int, request: Any, version: int) -> Any:
            producer.cluster.metadata.forget("t")
            return None

        fake.scripts[ApiKey.PRODUCE] = forgetful
        assert (await producer.send_and_wait("t", b"1")).offset == 0
        fake.recreate_topic("t")
        assert (await producer.send_and_wait("t", b"2")).offset == 0
    assert fake.log("t").values() == [b"2"]


async def test_a_range_is_not_read_on_in_another_topic() -> None:
    fake = topic(*(values("old", 10) for _ in range(5)))
    limits = ConsumerFetchConfig(partition_max_bytes=100, max_wait_ms=1)
    async with fake.cluster() as cluster:
        fetched = []
        with pytest.raises(OffsetOutOfRangeError, match="created again"):
            async for batches in PartitionReader(cluster, limits).batches([OffsetRange(T0, 0, 50)]):
                fetched.append(batches)
                if len(fetched) == 1:
                    fake.recreate_topic("t")
                    fake.log("t").put(batch(*values("new", 100)))
        assert not any(b"new" in bytes(batches.buffer) for batches in fetched)


async def test_a_range_that_was_planned_for_the_old_topic_is_not_read_in_the_new_one() -> None:
    """The topic is created again before the first fetch of the range."""
    fake = topic(*(values("old", 10) for _ in range(5)))
    old = fake.topics["t"]
    async with fake.cluster() as cluster:
        reader = PartitionReader(cluster)
        assert [found.end async for found in reader.batches([OffsetRange(T0, 5, 50, old)])][-1] == 50
        fake.recreate_topic("t")
        fake.log("t").put(batch(*values("new", 100)))
        with pytest.raises(TopicReplacedError, match=f"offset 5 of t-0 .*{old}.*{fake.topics['t']}"):
            await anext(reader.batches([OffsetRange(T0, 5, 50, old)]))


async def test_a_range_of_the_new_topic_is_read_by_a_client_that_knows_the_old_one() -> None:
    fake = topic(values("old", 10))
    async with fake.cluster() as cluster:
        await cluster.topics(["t"])
        fake.recreate_topic("t")
        fake.log("t").put(batch(*values("new", 3)))
        found = [one async for one in PartitionReader(cluster).batches([OffsetRange(T0, 0, 3, fake.topics["t"])])]
        assert [b"new" in bytes(one.buffer) for one in found] == [True]


async def test_a_state_is_not_read_on_in_another_topic() -> None:
    fake = topic(values("old", 10))
    async with fake.cluster() as cluster:
        log: TopicLog[str] = TopicLog(cluster, TopicLogOptions("t", "writer"), Texts())
        await log.catch_up(lambda record: None)
        fake.recreate_topic("t")
        fake.log("t").put(batch(*values("new", 3)))
        with pytest.raises(TopicLogError, match="created again"):
            await log.catch_up(lambda record: None)


async def test_a_share_consumer_keeps_the_records_of_both_topics_apart() -> None:
    """An acknowledgement of the old topic's record is not taken for one of the new record at the same offset."""
    fake = topic()
    results: list[AcknowledgementResult] = []
    async with fake.cluster() as cluster:
        member = ShareMember("g", "me")
        fetcher = ShareFetcher(
            cluster,
            member,
            ShareFetchConfig(),
            implicit=True,
            key=None,
            value=None,
            wake=lambda: None,
            note=results.append,
        )

        async def receive(timestamp: int) -> tuple[TopicIdPartition, ConsumerRecord[Any, Any]]:
            await cluster.refresh(["t"])
            partition = TopicIdPartition(fake.topics["t"], 0)
            member.assigned = frozenset({partition})
            await fetcher._by_leader()
            broker = fetcher._brokers.setdefault(1, _Broker())
            record = ConsumerRecord("t", 0, 5, timestamp, 0, None, b"", ())
            broker.ready.append((partition, record))
            fetcher.take().receive(1)
            return partition, record

        old, old_record = await receive(1_000)
        fake.recreate_topic("t")
        new, new_record = await receive(2_000)
        with pytest.raises(AcknowledgementError, match="its topic was deleted"):
            fetcher.acknowledge(old_record, AcknowledgeType.ACCEPT)
        fetcher.acknowledge(new_record, AcknowledgeType.REJECT)
        fetcher.collect()
        due = fetcher._brokers[1].session.take_due()
        assert due == {old: {5: AcknowledgeType.ACCEPT}, new: {5: AcknowledgeType.REJECT}}
        fetcher._settle(fetcher._brokers[1], old, due[old], ErrorCode.UNKNOWN_TOPIC_ID, None)
        assert [(result.partition, result.offsets) for result in results] == [(T0, frozenset({5}))]
        assert [held[2] for held in fetcher._held.values()] == [new_record]
