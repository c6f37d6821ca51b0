"""Records of one cluster come out equal in the other, once, whatever they are and whoever copied before."""

from __future__ import annotations

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.mirror.errors import MirrorDataLossError
from tests.progress import wait_until
from tests.system.spark.broker import Record, values
from tests.system.spark.mirror.clusters import Pair, contents, read_all

pytestmark = pytest.mark.system

ODD = [
    Record(b"plain", b"k", timestamp=1_000),
    Record(b"no key", None, timestamp=2_000),
    Record(None, b"tombstone", timestamp=3_000),
    Record(b"", b"", timestamp=4_000),
    Record(b"headers", b"h", timestamp=5_000, headers=(("b", b"2"), ("a", b"1"), ("a", None), ("b", b""))),
    Record(b"large" * 100_000, b"l", timestamp=6_000),
    Record(b"earlier", b"e", timestamp=1_500),
    Record(b"other partition", b"o", partition=1, timestamp=7_000),
]


@pytest.mark.timeout(300)
def test_records_come_out_equal_and_once(pair: Pair, topic: str) -> None:
    copy, tp = f"A.{topic}", TopicPartition(topic, 0)
    pair.source.create(topic, 2)
    pair.target.create(copy, 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        pair.source.produce(topic, ODD, compression_type=codec)
    pair.source.transaction(topic, values(5, start=100), commit=True)
    pair.source.transaction(topic, values(5, start=200), commit=False)
    pair.source.transaction(topic, values(5, start=300), commit=True)
    plan = pair.plan({topic: copy})
    with pair.copying(plan) as copier:
        pair.wait(plan, copier)
        pair.source.add_partitions(topic, 3)  # both sides grow while the copier runs
        pair.target.add_partitions(copy, 3)
        pair.source.produce(topic, [*values(3, start=400), *values(3, start=500, partition=2)])
        pair.wait(plan, copier)
    pair.source.produce(topic, values(3, start=600))
    pair.copy(plan)  # another copier continues
    for partition in range(3):
        sent = read_all(pair.servers[0], topic, partition)
        assert contents(read_all(pair.servers[1], copy, partition)) == contents(sent)
        assert len(sent) > 0
    everything = read_all(pair.servers[1], copy, 0, isolation="read_uncommitted")
    assert not any(record.value in {b"200", b"204"} for record in everything), "aborted records are not copied"
    assert pair.positions()[tp] == pair.ends(plan)[tp]
    upstream = {record.offset: record.content for record in read_all(pair.servers[0], topic)}
    downstream = {record.offset: record.content for record in everything}
    pairs = pair.runs(tp)
    assert pairs.keys() == upstream.keys()
    assert all(downstream[pairs[offset]] == content for offset, content in upstream.items())


@pytest.mark.timeout(300)
def test_a_copier_continues_where_mirror_maker_stopped(pair: Pair, topic: str) -> None:
    copy, tp = f"A.{topic}", TopicPartition(topic, 0)
    pair.source.create(topic)
    pair.target.create(copy)
    pair.source.produce(topic, values(10))
    pair.store_position(tp, 3)
    pair.copy(pair.plan({topic: copy}))
    assert [record.value for record in read_all(pair.servers[1], copy)] == [b"%d" % i for i in range(4, 10)]
    assert pair.positions()[tp] == 10
    pair.source.produce(topic, values(5, start=10))
    pair.store_position(tp, 12)  # MirrorMaker has run in between
    pair.copy(pair.plan({topic: copy}))
    found = [record.value for record in read_all(pair.servers[1], copy)]
    assert found == [b"%d" % i for i in [*range(4, 10), 13, 14]]


@pytest.mark.timeout(300)
def test_at_least_once_writes_no_transactions_and_copies_what_is_uncommitted(pair: Pair, topic: str) -> None:
    copy = f"A.{topic}"
    pair.source.create(topic)
    pair.target.create(copy, message_timestamp_type="LogAppendTime")
    pair.source.produce(topic, values(3))
    pair.source.transaction(topic, values(2, start=10), commit=False)
    pair.copy(pair.plan({topic: copy}, transactional=False))
    found = read_all(pair.servers[1], copy, isolation="read_uncommitted")
    assert [record.value for record in found] == [b"0", b"1", b"2", b"10", b"11"]
    assert [record.offset for record in found] == list(range(5)), "no marker is between the records"
    assert all(record.timestamp > 1_700_000_000_000 for record in found), "the target's own time"


@pytest.mark.timeout(300)
def test_equal_names_do_not_echo(pair: Pair, topic: str) -> None:
    pair.source.create(topic)
    pair.target.create(topic)
    pair.source.produce(topic, [Record(b"mine"), Record(b"came from B", headers=(("origin", b"B"),)), Record(b"last")])
    pair.copy(pair.plan({topic: topic}, provenance_header="origin"))
    found = read_all(pair.servers[1], topic)
    assert [(record.value, record.headers) for record in found] == [
        (b"mine", (("origin", b"A"),)),
        (b"last", (("origin", b"A"),)),
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [2, 9])
def test_a_topic_that_is_created_anew_stops_the_copier_or_is_copied_from_its_beginning(
    pair: Pair, topic: str, count: int
) -> None:
    """The new topic is shorter, or longer, than the position in the old one."""
    copy, tp = f"A.{topic}", TopicPartition(topic, 0)
    pair.source.create(topic)
    pair.target.create(copy)
    pair.source.produce(topic, values(5))
    pair.copy(pair.plan({topic: copy}))
    pair.source.delete(topic)
    pair.source.create(topic)
    pair.source.produce(topic, values(count, start=50))
    with pair.copying(pair.plan({topic: copy})) as copier:
        wait_until(lambda: copier.failure() is not None, "the copier has failed")
        failure = copier.failure()
    assert isinstance(failure, MirrorDataLossError)
    assert f"the topic {topic} was replaced" in str(failure)
    plan = pair.plan({topic: copy}, fail_on_data_loss=False)
    pair.copied.clear()
    with pair.copying(plan) as copier:
        wait_until(lambda: 49 + count in _numbers(pair, copy), "all is copied", progress=lambda: _numbers(pair, copy))
    assert _numbers(pair, copy) == [*range(5), *range(50, 50 + count)]
    assert pair.positions()[tp] == count


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [2, 40])
def test_a_topic_that_is_created_anew_while_it_is_copied_stops_the_copier(pair: Pair, topic: str, count: int) -> None:
    copy = f"A.{topic}"
    pair.source.create(topic)
    pair.target.create(copy)
    pair.source.produce(topic, values(5))
    plan = pair.plan({topic: copy})
    with pair.copying(plan) as copier:
        pair.wait(plan, copier)
        pair.source.delete(topic)
        pair.source.create(topic)
        pair.source.produce(topic, values(count, start=50))
        wait_until(lambda: copier.failure() is not None, "the copier has failed")
        assert f"the topic {topic} was replaced" in str(copier.failure())
    assert _numbers(pair, copy) == list(range(5))


@pytest.mark.timeout(300)
def test_records_that_retention_deletes_are_reported(pair: Pair, topic: str) -> None:
    copy, tp = f"A.{topic}", TopicPartition(topic, 0)
    pair.source.create(topic)
    pair.target.create(copy)
    pair.source.produce(topic, values(5))
    pair.copy(pair.plan({topic: copy}))
    pair.source.produce(topic, values(5, start=5))
    pair.source.delete_before(topic, 0, 8)
    pair.copied.clear()
    pair.copy(pair.plan({topic: copy}, fail_on_data_loss=False))
    assert _numbers(pair, copy) == [0, 1, 2, 3, 4, 8, 9]
    assert sum(copied.lost for copied in pair.copied if copied.partition == tp) == 3


@pytest.mark.timeout(300)
def test_a_compacted_log_is_copied_with_its_holes_and_times(pair: Pair, topic: str) -> None:
    """The copier begins when most records are gone, and the source's times are those at which it has appended them."""
    copy, tp = f"A.{topic}", TopicPartition(topic, 0)
    often = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01"}
    pair.source.create(topic, cleanup_policy="compact", message_timestamp_type="LogAppendTime", **often)
    pair.target.create(copy, cleanup_policy="compact")
    written = 0

    def is_compacted() -> bool:
        """A segment is compacted when a later one has been begun, so records are written until that has happened."""
        nonlocal written
        pair.source.produce(topic, [Record(b"%d" % (written + i), b"k%d" % i) for i in range(10)])
        pair.source.produce(topic, [Record(None, b"gone")])
        written += 11
        return len(read_all(pair.servers[0], topic)) < written // 2

    wait_until(is_compacted, "the source has compacted its log", progress=lambda: written)
    pair.copy(pair.plan({topic: copy}))
    sent, found = (
        {one.key: one.content for one in read_all(at, name)}
        for at, name in zip(pair.servers, (topic, copy), strict=True)
    )
    assert found == sent
    assert all(content[3] > 1_700_000_000_000 for content in sent.values()), "the source's own times"
    assert len(read_all(pair.servers[1], copy)) < written
    assert pair.positions()[tp] == written


def _numbers(pair: Pair, topic: str) -> list[int]:
    return [int(record.value or b"") for record in read_all(pair.servers[1], topic)]
