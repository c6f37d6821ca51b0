"""Mirrors between two clusters in virtual time: real partitions, fetchers, handlers and logs on both sides.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.records.control import EndTxn, build_end_txn_marker
from barnabas.protocol.records.validate import Origin
from barnabas.protocol.wire.apis import ApiKey
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.values import LinkDefinition
from barnabas.server.replication.reading import SpecialTimestamp
from tests.unit.server.links.fetching.clusters import (
    KAFKA_2_1,
    LINK,
    Site,
    log_bytes,
    stored_state,
    with_two_clusters,
)
from tests.unit.server.replication.brokers import Broker

S = MirrorState


def transaction(broker: Broker, producer_id: int, *values: bytes, end: bool | None, sequence: int = 0) -> None:
    """Append transactional records, and a commit marker (True), an abort marker (False), or no marker (None)."""
    partition = broker.partition()
    records = [SimpleRecord(None, value, 0) for value in values]
    batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    partition.append(batch, 1, 0, Origin.CLIENT)
    if end is not None:
        marker = build_end_txn_marker(EndTxn(end, 0), producer_id=producer_id, producer_epoch=0, timestamp=0)
        partition.append(marker, 1, 0, Origin.COORDINATOR)


def everywhere_equal(source: Site, target: Site) -> None:
    """Every replica of both sides has the same bytes and the same leader epochs."""
    expected = log_bytes(source.leader())
    for site in (source, target):
        for broker in site.cluster.brokers.values():
            if broker.alive:
                assert log_bytes(broker) == expected
    ours, theirs = target.leader().partition().open_log, source.leader().partition().open_log
    assert [e for e in theirs.epoch_entries if e.start_offset < theirs.log_end_offset] == list(ours.epoch_entries)
    assert ours.aborted_transactions(0, ours.log_end_offset) == theirs.aborted_transactions(0, ours.log_end_offset)


async def mirrored(source: Site, target: Site) -> None:
    """A mirror with a few records."""
    await source.create()
    assert await source.leader().produce(b"a", b"b") is ErrorCode.NONE
    await target.create_mirror()
    await target.caught_up()


async def all_replicas_have(site: Site, end: int) -> None:
    brokers = [b for b in site.cluster.brokers.values() if b.alive]
    await site.cluster.until(lambda: all(b.end() == end for b in brokers))


@pytest.mark.parametrize("versions", [{}, KAFKA_2_1, {ApiKey.FETCH: 12}])
def test_a_mirror_has_the_bytes_offsets_markers_and_epochs_of_its_source(versions: dict[ApiKey, int]) -> None:
    async def main(source: Site, target: Site) -> None:
        source.versions = versions
        await mirrored(source, target)
        transaction(source.leader(), 7, b"c", end=True)
        transaction(source.leader(), 8, b"d", b"e", end=False)
        await source.move_leader(2)
        assert await source.leader().produce(b"f") is ErrorCode.NONE
        await target.caught_up()
        await all_replicas_have(source, source.leader().end())
        await all_replicas_have(target, source.leader().end())
        everywhere_equal(source, target)
        (report,) = target.reports()
        assert (report.state, report.lag, report.reason) == (S.MIRRORING, 0, "")
        state = target.cluster.image.topics.partition("t", 0)
        assert state is not None and state.leader_epoch >= 1

    with_two_clusters(main)


def test_a_mirror_refuses_writes_and_deletions() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        for write in (lambda: target.leader().append(b"x"), lambda: target.leader().partition().delete_records(1, 0)):
            with pytest.raises(KafkaError) as raised:
                write()
            assert raised.value.code is ErrorCode.POLICY_VIOLATION
            assert "links promote dr" in str(raised.value)

    with_two_clusters(main)


def test_a_new_leader_of_the_mirror_continues_where_the_old_one_stopped() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        for number in (2, 1, 2):
            await target.move_leader(number)
            assert await source.leader().produce(b"x") is ErrorCode.NONE
            await target.caught_up()
        await all_replicas_have(target, source.leader().end())
        everywhere_equal(source, target)

    with_two_clusters(main)


def test_the_leader_epoch_is_raised_before_records_of_a_later_epoch_are_appended() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        source.commit_partition(leader_epoch=40)
        await source.cluster.until(lambda: source.leader().partition().leader_epoch == 40)
        assert await source.leader().produce(b"c") is ErrorCode.NONE
        await target.caught_up()
        state = target.cluster.image.topics.partition("t", 0)
        assert state is not None and state.leader_epoch == 50
        await all_replicas_have(target, 3)
        everywhere_equal(source, target)

    with_two_clusters(main)


def test_pause_and_resume() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        target.mirror(state="paused")
        await target.until_state(S.PAUSED)
        assert await source.leader().produce(b"c") is ErrorCode.NONE
        await asyncio.sleep(5)
        assert target.leader().end() == 2
        target.mirror(state="active")
        await target.caught_up()
        assert target.leader().values() == [b"a", b"b", b"c"]

    with_two_clusters(main)


def test_a_cut_over_aborts_open_transactions_and_the_topic_then_takes_writes() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        transaction(source.leader(), 900, b"open", end=None)
        await target.caught_up()
        source.is_reachable = False  # the source is gone: a failover must not wait for it
        began = target.cluster.loop.time()
        target.mirror(state="stopping")
        await target.cluster.until(lambda: stored_state(target).state is S.STOPPED)
        target.mirror(state="stopped")
        await target.cluster.until(lambda: not target.leader().partition().is_mirror)
        assert target.cluster.loop.time() - began < 2
        assert (stored_state(target).position.offset, target.barrier) == (3, 900)
        leader = target.leader()
        log = leader.partition().open_log
        assert [(t.producer_id, t.first_offset, t.last_offset) for t in log.aborted_transactions(0, 9)] == [(900, 2, 3)]
        assert log.last_stable_offset(leader.partition().high_watermark) == 4
        assert await leader.produce(b"ours") is ErrorCode.NONE
        assert target.reports() == []
        await all_replicas_have(target, 5)

    with_two_clusters(main)


def test_a_leader_that_dies_while_it_cuts_over_is_replaced_by_one_that_completes_the_cut_over() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        transaction(source.leader(), 900, b"open", end=None)
        await target.caught_up()
        await all_replicas_have(target, 3)
        target.mirror(state="stopping")
        await target.until_state(S.STOPPING)
        target.cluster.brokers[1].kill()
        target.cluster.fence(1)
        await target.cluster.until(lambda: stored_state(target).state is S.STOPPED)
        assert stored_state(target).position.offset == 3
        assert target.leader().number == 2
        assert target.leader().end() == 4

    with_two_clusters(main)


def test_a_failback_cuts_the_unmirrored_tail_of_every_replica_and_saves_it(caplog: pytest.LogCaptureFixture) -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        source.is_reachable = False
        assert await source.leader().produce(b"lost-1", b"lost-2") is ErrorCode.NONE
        replicas = source.cluster.brokers.values()
        await source.cluster.until(lambda: all(b.partition().high_watermark == 4 for b in replicas))
        target.mirror(state="stopping")
        await target.cluster.until(lambda: stored_state(target).state is S.STOPPED)
        target.mirror(state="stopped")
        await target.cluster.until(lambda: not target.leader().partition().is_mirror)
        assert await target.leader().produce(b"new") is ErrorCode.NONE
        source.is_reachable = True
        source.mirror()  # the other way round: what was the source follows
        await source.cluster.until(lambda: source.state() is S.MIRRORING)
        await source.caught_up()
        await all_replicas_have(source, 3)
        for broker in source.cluster.brokers.values():
            assert broker.values() == [b"a", b"b", b"new"]
        assert source.history[:2] == [S.LOG_ALIGNMENT, S.LOG_ALIGNMENT]
        disk = source.cluster.brokers[1].disk.mount()
        (saved,) = [name for name in disk.listdir("/data") if "mirror-tail" in name]
        assert saved == "00000000000000000002.mirror-tail-t-0-4.log"

    with_two_clusters(main)
    assert not [record for record in caplog.records if record.levelname == "ERROR"], "the operator has asked for it"
    assert "the source of the mirror does not have them" in caplog.text


def test_a_failback_after_an_unclean_election_that_the_mirror_has_not_seen() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        leader = source.leader()
        assert await leader.produce(b"old", b"old", b"old") is ErrorCode.NONE
        await target.caught_up()
        source.is_reachable = False
        for broker in source.cluster.brokers.values():
            broker.partition().open_log.truncate_to(2)
            broker.partition().high_watermark = 2
        await source.move_leader(2)
        assert await source.leader().produce(b"x", b"y", b"z", b"tail") is ErrorCode.NONE
        target.mirror(state="stopping")
        await target.cluster.until(lambda: stored_state(target).state is S.STOPPED)
        target.mirror(state="stopped")
        await target.cluster.until(lambda: not target.leader().partition().is_mirror)
        assert await target.leader().produce(b"new") is ErrorCode.NONE  # in the same leader epoch as `x`
        source.is_reachable = True
        source.mirror()
        await source.cluster.until(lambda: source.state() is S.MIRRORING)
        await source.caught_up()
        assert source.leader().values() == [b"a", b"b", b"old", b"old", b"old", b"new"]

    with_two_clusters(main)


def test_a_failback_after_a_leader_epoch_without_records_cuts_nothing() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        await source.move_leader(2)
        assert source.leader().partition().open_log.latest_epoch == 1
        target.mirror(state="stopping")
        await target.cluster.until(lambda: stored_state(target).state is S.STOPPED)
        target.mirror(state="stopped")
        await target.cluster.until(lambda: not target.leader().partition().is_mirror)
        source.mirror()
        await source.cluster.until(lambda: [report.lag for report in source.reports()] == [0])
        assert await target.leader().produce(b"new") is ErrorCode.NONE
        await source.caught_up()
        await all_replicas_have(source, 3)
        assert S.FAILED not in source.history

    with_two_clusters(main)


def test_a_failback_waits_for_a_replica_that_is_away() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        assert await source.leader().produce(b"c") is ErrorCode.NONE
        await target.caught_up()
        await all_replicas_have(source, 3)
        source.is_reachable = False
        assert await source.leader().produce(b"lost") is ErrorCode.NONE
        target.mirror(state="stopping")
        await target.cluster.until(lambda: stored_state(target).state is S.STOPPED)
        target.mirror(state="stopped")
        source.cluster.brokers[2].kill()
        source.cluster.fence(2)
        source.is_reachable = True
        source.mirror()
        await asyncio.sleep(10)
        assert source.state() is S.LOG_ALIGNMENT
        (report,) = source.reports()
        assert "not every replica" in report.reason
        source.cluster.brokers[2].start()
        source.attach(source.cluster.brokers[2])
        await source.until_state(S.MIRRORING)
        await all_replicas_have(source, 3)

    with_two_clusters(main)


def test_a_topic_with_records_of_its_own_is_not_truncated() -> None:
    async def main(source: Site, target: Site) -> None:
        await source.create()
        await target.create()
        assert await target.leader().produce(b"mine") is ErrorCode.NONE
        target.mirror()
        await target.until_state(S.FAILED)
        assert target.leader().values() == [b"mine"]
        assert "cannot say up to which offset" in target.reports()[0].reason

    with_two_clusters(main)


def test_a_topic_that_is_created_again_on_the_source_fails_the_mirror() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        topic = source.cluster.image.topics.get("t")
        assert topic is not None
        from barnabas.server.metadata.records.topics import RemoveTopicRecord

        source.cluster.commit([RemoveTopicRecord(topic_id=topic.topic_id)])
        await asyncio.sleep(1)
        source.cluster.create("t", [[1, 2]])
        await target.cluster.until(lambda: "created again" in target.reports()[0].reason)
        assert target.leader().values() == [b"a", b"b"]

    with_two_clusters(main)


def test_a_mirror_starts_at_the_log_start_of_its_source_inside_a_batch_and_follows_it() -> None:
    async def main(source: Site, target: Site) -> None:
        await source.create()
        assert await source.leader().produce(b"0", b"1", b"2") is ErrorCode.NONE
        assert await source.leader().produce(b"3", b"4") is ErrorCode.NONE
        source.leader().partition().delete_records(1, 0)
        await target.create_mirror()
        await target.caught_up()
        await all_replicas_have(target, 5)
        for broker in target.cluster.brokers.values():
            assert broker.partition().open_log.log_start_offset == 1
            assert broker.values() == [b"1", b"2", b"3", b"4"]
        source.leader().partition().delete_records(3, 0)
        assert await source.leader().produce(b"5") is ErrorCode.NONE
        await target.cluster.until(
            lambda: all(b.partition().open_log.log_start_offset == 3 for b in target.cluster.brokers.values())
        )

    with_two_clusters(main)


def test_a_mirror_that_retention_has_overtaken_goes_on_at_the_log_start_and_counts_what_it_skipped() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        target.mirror(state="paused")
        await target.until_state(S.PAUSED)
        for value in (b"c", b"d", b"e"):
            assert await source.leader().produce(value) is ErrorCode.NONE
        source.leader().partition().delete_records(4, 0)
        target.mirror(state="active")
        await target.caught_up()
        await all_replicas_have(target, 5)
        for broker in target.cluster.brokers.values():
            assert broker.values() == [b"e"]
        assert target.reports()[0].skipped_records == 2

    with_two_clusters(main)


@pytest.mark.parametrize("versions", [{}, KAFKA_2_1])
@pytest.mark.parametrize("recovers", [False, True])
def test_an_unclean_election_on_the_source(versions: dict[ApiKey, int], recovers: bool) -> None:
    from barnabas.server.metadata.image.cluster import ResourceType

    async def main(source: Site, target: Site) -> None:
        source.versions = versions
        await source.create(replicas=1)
        leader = source.leader()
        assert await leader.produce(b"a", b"b") is ErrorCode.NONE
        assert await leader.produce(b"lost", b"lost", b"lost") is ErrorCode.NONE
        await target.create_mirror()
        await target.caught_up()
        await all_replicas_have(target, 5)
        if recovers:
            target.cluster.configure(ResourceType.TOPIC, "t", "mirror.support.unclean.leader.election", "true")
        leader.partition().open_log.truncate_to(2)
        leader.partition().high_watermark = 2
        source.commit_partition()
        await source.cluster.until(lambda: leader.partition().leader_epoch == 1)
        assert await leader.produce(b"other", b"more") is ErrorCode.NONE
        if recovers:
            await target.caught_up()
            await all_replicas_have(target, 4)
            for broker in target.cluster.brokers.values():
                assert broker.values() == [b"a", b"b", b"other", b"more"]
            assert S.ULE_RECOVERY in target.history
            latest = await target.leader().partition().list_offset(SpecialTimestamp.LATEST)
            assert latest.offset == 4
        else:
            await target.until_state(S.FAILED)
            assert "unclean leader election" in target.reports()[0].reason
            assert target.leader().values() == [b"a", b"b", b"lost", b"lost", b"lost"]

    with_two_clusters(main)


def test_retention_and_compaction_leave_a_mirror_alone() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        log = target.leader().partition().open_log
        assert log.enforce_retention(1 << 60, 2) == 0
        assert log.log_start_offset == 0

    with_two_clusters(main)


def test_a_source_that_is_away_is_reported_and_found_again() -> None:
    async def main(source: Site, target: Site) -> None:
        await mirrored(source, target)
        source.is_reachable = False
        await asyncio.sleep(30)
        assert target.state() is S.MIRRORING
        assert "REQUEST_TIMED_OUT" in target.reports()[0].reason
        source.is_reachable = True
        assert await source.leader().produce(b"c") is ErrorCode.NONE
        await target.caught_up()
        await target.cluster.until(lambda: target.reports()[0].reason == "")

    with_two_clusters(main)


SLOW = LinkDefinition(LINK, "1:9092,2:9092", settings={"mirror.metadata.refresh.interval.ms": "3600000"})


def test_a_changed_definition_ends_the_back_off_of_a_failed_mirror() -> None:
    async def main(source: Site, target: Site) -> None:
        target.definition = SLOW
        await mirrored(source, target)
        source.password = "new"
        assert await source.leader().produce(b"c") is ErrorCode.NONE
        await target.until_state(S.FAILED)
        assert "wrong password" in target.reports()[0].reason
        await asyncio.sleep(600)  # the back-off is some minutes now
        target.definition = replace(SLOW, client={"password": "new"}, version=1)
        for links in target.links.values():
            links.on_link_changed(LINK)
        changed_at = asyncio.get_running_loop().time()
        await target.caught_up()
        assert asyncio.get_running_loop().time() - changed_at < 2

    with_two_clusters(main)


def test_a_refused_password_makes_a_broker_read_the_definition_again() -> None:
    async def main(source: Site, target: Site) -> None:
        target.definition = SLOW
        await mirrored(source, target)
        target.definition = replace(SLOW, client={"password": "new"}, version=1)
        await asyncio.sleep(60)  # no broker has learned of it: its announcement was lost
        source.password = "new"
        assert await source.leader().produce(b"c") is ErrorCode.NONE
        changed_at = asyncio.get_running_loop().time()
        await target.caught_up()
        assert asyncio.get_running_loop().time() - changed_at < 5

    with_two_clusters(main)


def test_many_partitions_of_several_topics_share_a_session() -> None:
    async def main(source: Site, target: Site) -> None:
        await source.create(partitions=12)
        for index in range(12):
            assert await source.leader("t", index).produce(b"%d" % index, index=index) is ErrorCode.NONE
        await target.create_mirror(partitions=12)
        for index in range(12):
            await target.caught_up(index)
            assert target.leader("t", index).values("t", index) == [b"%d" % index]

    with_two_clusters(main)
