"""What prevents a restore, which records are produced, and what committed offsets become."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from barnabas.backup.cluster_state import BackupTopics
from barnabas.backup.errors import BackupError
from barnabas.backup.restoring.plan import TargetFacts, binding_of, configs_to_set, conflicts, select, translated
from barnabas.backup.restoring.rewriting import kept_records, produced_batch
from barnabas.backup.restoring.translating import LogTransactions, OffsetTranslation
from barnabas.backup.values import AclBackup, BackedUpOffset, GroupBackup, QuotaBackup
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import TimestampType, check_crc, iter_records, read_header
from barnabas.protocol.records.build import SimpleRecord, build_batch, rebuild_batch
from barnabas.protocol.records.compression import CompressionType
from tests.unit.backup.batches import batch, partition, run_of

EMPTY = TargetFacts(frozenset(), {}, {})
RUN = replace(
    run_of(partition(0, 10)),
    groups=(GroupBackup("g", "consumer", (BackedUpOffset("orders", 0, 5),)),),
    quotas=(QuotaBackup({"user": "alice"}, {"producer_byte_rate": 10.0}),),
)


def test_an_empty_target_takes_a_run() -> None:
    assert conflicts(RUN, EMPTY, whole=True) == []


def test_any_topic_prevents_a_whole_restore_and_the_same_topic_a_part() -> None:
    other = replace(EMPTY, topics=frozenset({"other"}))
    assert conflicts(RUN, other, whole=True) == ["it has the topic other"]
    assert conflicts(RUN, other, whole=False) == []
    same = replace(EMPTY, topics=frozenset({"orders"}))
    assert conflicts(RUN, same, whole=False) == ["it has the topic orders"]


@pytest.mark.parametrize(("offset", "refused"), [(5, False), (6, True)])
def test_other_offsets_of_a_group_are_not_overwritten(offset: int, refused: bool) -> None:
    target = replace(EMPTY, groups={"g": {TopicPartition("orders", 0): offset}})
    assert bool(conflicts(RUN, target, whole=True)) is refused


@pytest.mark.parametrize(("rate", "refused"), [(10.0, False), (11.0, True)])
def test_other_quotas_are_not_overwritten(rate: float, refused: bool) -> None:
    target = replace(EMPTY, quotas={(("user", "alice"),): {"producer_byte_rate": rate}})
    assert bool(conflicts(RUN, target, whole=True)) is refused


def test_many_names_are_cut() -> None:
    target = replace(EMPTY, topics=frozenset(f"t{number}" for number in range(8)))
    assert conflicts(RUN, target, whole=True) == ["it has the topics t0, t1, t2, t3, t4 and 3 more"]


def test_a_part_has_the_offsets_of_its_topics_and_no_rights() -> None:
    part = select(RUN, BackupTopics(("ord.*",)))
    assert (part.topics, part.groups, part.acls, part.quotas) == (RUN.topics, RUN.groups, None, None)
    with pytest.raises(BackupError, match="no topic that matches"):
        select(RUN, BackupTopics(("other",)))


def test_configs_that_name_brokers_or_links_are_left_out() -> None:
    configs = {"retention.ms": "1", "mirror.name": "x", "leader.replication.throttled.replicas": "*"}
    assert configs_to_set(configs) == (
        {"retention.ms": "1"},
        ["leader.replication.throttled.replicas", "mirror.name"],
    )


def test_an_acl_of_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(BackupError, match="PLANET"):
        binding_of(AclBackup("PLANET", "x", "LITERAL", "User:a", "*", "READ", "ALLOW"))


# -- Produce -----------------------------------------------------------------------------------------------------------


def values_of(data: bytes) -> list[tuple[bytes | None, bytes | None, int]]:
    header = read_header(data)
    check_crc(data, 0, header)
    return [(record.key, record.value, record.timestamp) for record in iter_records(data, 0, header)]


def test_a_batch_keeps_its_records_and_loses_its_transaction() -> None:
    data = batch(40, 3, producer=9, transactional=True)
    header = read_header(data)
    kept = kept_records(data, 0, header, 0)
    sent = produced_batch(data, 0, header, kept, (77, 1), 12)
    assert (list(kept.offsets), kept.records) == ([40, 41, 42], None)
    new = read_header(sent)
    assert (new.producer_id, new.producer_epoch, new.base_sequence, new.is_transactional) == (77, 1, 12, False)
    assert sent[61:] == data[61:]
    assert values_of(sent) == values_of(data)


def test_holes_of_compaction_are_closed() -> None:
    data = batch(40, 5)
    header = read_header(data)
    records = [record for record in iter_records(data, 0, header) if record.offset in (41, 44)]
    compacted = rebuild_batch(header, records)
    header = read_header(compacted)
    kept = kept_records(compacted, 0, header, 0)
    assert list(kept.offsets) == [41, 44]
    sent = produced_batch(compacted, 0, header, kept, (77, 1), 0)
    assert read_header(sent).last_offset_delta == 1
    assert values_of(sent) == values_of(compacted)


def test_records_below_the_log_start_and_append_times() -> None:
    data = build_batch(
        [SimpleRecord(b"a", b"1", 5), SimpleRecord(b"b", b"2", 6)],
        base_offset=10,
        codec=CompressionType.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=99,
    )
    header = read_header(data)
    kept = kept_records(data, 0, header, 11)
    sent = produced_batch(data, 0, header, kept, (1, 0), 0)
    assert list(kept.offsets) == [11]
    assert values_of(sent) == [(b"b", b"2", 99)]
    assert read_header(sent).codec is CompressionType.ZSTD
    assert read_header(sent).timestamp_type is TimestampType.CREATE_TIME


def test_transactions_are_committed_aborted_or_open() -> None:
    transactions = LogTransactions()
    transactions.on_marker(9, 10, commit=True)
    transactions.on_marker(9, 20, commit=False)
    transactions.on_marker(9, 30, commit=True)
    found = {
        base: transactions.is_committed(read_header(batch(base, producer=9, transactional=True)))
        for base in (4, 15, 25, 31)
    }
    assert found == {4: True, 15: False, 25: True, 31: False}
    assert not transactions.is_committed(read_header(batch(4, producer=8, transactional=True)))
    assert transactions.is_committed(read_header(batch(15)))


def test_committed_offsets_go_to_the_next_record_that_was_restored() -> None:
    translation = OffsetTranslation([0, 12, 13, 15, 40, 99])
    translation.on_records(range(10, 13), 0)
    translation.on_records([15, 20], 3)
    assert translation.finish(5) == {0: 0, 12: 2, 13: 3, 15: 3, 40: 5, 99: 5}


def test_offsets_of_a_partition_that_the_run_does_not_have_are_left_out() -> None:
    kept, orphan = BackedUpOffset("orders", 0, 7), BackedUpOffset("orders", 5, 9)
    group = GroupBackup("billing", "classic", (kept, orphan))
    assert translated(group, {TopicPartition("orders", 0): {7: 3}}) == [(kept, 3)]
