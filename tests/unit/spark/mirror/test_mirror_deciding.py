"""What a pair decides: topics, configs, ACLs, checkpoints, group offsets, losses and lag."""

from __future__ import annotations

from barnabas.client.values import (
    AlterOp,
    ConfigChange,
    ConfigEntry,
    ConfigSource,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    NewTopic,
    OffsetAndMetadata,
)
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.spark.mirror.deciding.checkpoints import Checkpoints, GroupTranslation
from barnabas.spark.mirror.deciding.group_offsets import is_consumer_group, may_write, offsets_to_write
from barnabas.spark.mirror.deciding.lag import LagBoard, MirrorLag
from barnabas.spark.mirror.deciding.topic_acls import missing_acls
from barnabas.spark.mirror.deciding.topic_configs import config_changes, creation_configs
from barnabas.spark.mirror.deciding.topics import SeenTopic, TopicChanges, internal_topic, new_topic, plan_topics
from barnabas.spark.mirror.deciding.watching import MirrorLoss, find_losses
from barnabas.spark.mirror.naming.filters import NameFilter, TopicSelection
from barnabas.spark.mirror.naming.policies import DefaultReplicationPolicy
from barnabas.spark.mirror.offsets.sync_store import OffsetSyncStore
from barnabas.spark.mirror.offsets.translation import Translator
from barnabas.spark.mirror.ports import CopiedRange, CopiedRanges, OffsetRun
from barnabas.spark.mirror.records import Checkpoint, OffsetSync

_SELECTION = TopicSelection(DefaultReplicationPolicy(), "A", "B", NameFilter(["t.*", "B\\..*"]).selects)
_T0 = TopicPartition("t", 0)
_COPY = TopicPartition("A.t", 0)


# -- topics ------------------------------------------------------------------------------------------------------------


def test_missing_topics_are_created_and_small_ones_grow() -> None:
    source = {name: SeenTopic(name, 4) for name in ("t1", "t2", "t3", "B.t1", "other", "heartbeats")}
    target = {"A.t2": SeenTopic("A.t2", 2), "A.t3": SeenTopic("A.t3", 9), "A.heartbeats": SeenTopic("A.heartbeats", 4)}
    assert plan_topics(_SELECTION, source, target) == TopicChanges(
        {"heartbeats": "A.heartbeats", "t1": "A.t1", "t2": "A.t2", "t3": "A.t3"}, ["t1"], {"A.t2": 4}
    )


def test_a_small_cluster_gets_a_replica_on_each_broker() -> None:
    topic = new_topic(SeenTopic("t", 3), "A.t", {"retention.ms": "1"}, 2, brokers=1)
    assert topic == NewTopic("A.t", 3, 1, {"retention.ms": "1"})
    assert internal_topic("heartbeats", 3, brokers=5) == NewTopic("heartbeats", 1, 3, {"cleanup.policy": "compact"})
    assert internal_topic("mm2-offsets.A.internal", -1, 5, 25).replication_factor == -1


# -- configs -----------------------------------------------------------------------------------------------------------


def _entry(name: str, value: str, source: ConfigSource = ConfigSource.TOPIC) -> ConfigEntry:
    return ConfigEntry(name, value, source)


_CONFIGS = [
    _entry("retention.ms", "5"),
    _entry("segment.bytes", "100", ConfigSource.DEFAULT),
    _entry("max.message.bytes", "7", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    _entry("flush.ms", "1", ConfigSource.STATIC_BROKER),
    _entry("min.insync.replicas", "2"),
    ConfigEntry("secret", None, ConfigSource.TOPIC, is_sensitive=True),
    ConfigEntry("fixed", "1", ConfigSource.TOPIC, is_read_only=True),
]
_NOT_ISR = NameFilter([".*"], ["min\\.insync\\.replicas"]).selects


def test_a_copy_is_created_with_the_configs_that_are_not_defaults() -> None:
    assert creation_configs(_CONFIGS, _NOT_ISR, use_source_defaults=False) == {
        "retention.ms": "5",
        "max.message.bytes": "7",
    }
    assert creation_configs(_CONFIGS, _NOT_ISR, use_source_defaults=True) == {
        "retention.ms": "5",
        "segment.bytes": "100",
        "max.message.bytes": "7",
    }


def test_only_configs_that_differ_are_changed() -> None:
    target = {
        "retention.ms": _entry("retention.ms", "5"),
        "segment.bytes": _entry("segment.bytes", "200"),
        "max.message.bytes": _entry("max.message.bytes", "7", ConfigSource.DEFAULT),
    }
    assert config_changes(_CONFIGS, target, _NOT_ISR, use_source_defaults=False) == [
        ConfigChange("segment.bytes", None, AlterOp.DELETE),
        ConfigChange("max.message.bytes", "7"),
    ]
    assert config_changes(_CONFIGS, target, _NOT_ISR, use_source_defaults=True) == [
        ConfigChange("segment.bytes", "100"),
        ConfigChange("max.message.bytes", "7"),
    ]


# -- ACLs --------------------------------------------------------------------------------------------------------------


def _acl(
    name: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    kind: AclResourceType = AclResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, "User:u", "*", operation, permission)


def test_nobody_may_write_into_a_copy() -> None:
    deny = AclPermissionType.DENY
    source = [
        _acl("t", AclOperation.READ),
        _acl("t", AclOperation.WRITE),
        _acl("t2", AclOperation.ALL),
        _acl("t2", AclOperation.READ),
        _acl("t", AclOperation.WRITE, deny),
        _acl("t", AclOperation.READ, pattern=PatternType.PREFIXED),
        _acl("t", AclOperation.READ, kind=AclResourceType.GROUP),
        _acl("*", AclOperation.READ),
        _acl("other", AclOperation.READ),
        _acl("B.t", AclOperation.READ),
    ]
    expected = {_acl("A.t", AclOperation.READ), _acl("A.t2", AclOperation.READ), _acl("A.t", AclOperation.WRITE, deny)}
    assert set(missing_acls(source, (), _SELECTION)) == expected
    assert missing_acls(source, [*expected], _SELECTION) == []


# -- checkpoints -------------------------------------------------------------------------------------------------------


def _store(partition: TopicPartition, *syncs: tuple[int, int]) -> OffsetSyncStore:
    store = OffsetSyncStore()
    store.begin(only_newest=False)
    for upstream, downstream in syncs:
        store.add(OffsetSync(partition, upstream, downstream))
    store.loaded()
    return store


def test_checkpoints_are_due_when_the_copy_went_forward_or_the_group_went_back() -> None:
    translation = GroupTranslation(_SELECTION, Translator(_store(_T0, (100, 10), (200, 110))))
    checkpoints = Checkpoints()

    def due(offset: int) -> list[Checkpoint]:
        found = checkpoints.due("g", {_T0: OffsetAndMetadata(offset, "m")}, translation)
        checkpoints.emitted(found)
        return found

    assert due(99) == []
    assert due(200) == [Checkpoint("g", _COPY, 200, 110, "m")]
    assert due(200) == []
    assert due(250) == [Checkpoint("g", _COPY, 250, 111, "m")]
    assert due(260) == []
    assert due(100) == [Checkpoint("g", _COPY, 100, 10, "m")]
    assert checkpoints.newest("g") == {_COPY: Checkpoint("g", _COPY, 100, 10, "m")}


def test_topics_that_are_not_mirrored_have_no_checkpoints() -> None:
    other = TopicPartition("other", 0)
    translation = GroupTranslation(_SELECTION, Translator(_store(other, (0, 0))))
    assert translation.checkpoint("g", other, OffsetAndMetadata(5)) is None
    assert translation.checkpoint("g", _T0, OffsetAndMetadata(5)) is None
    assert translation.checkpoint("g", _T0, OffsetAndMetadata(-1)) is None


def test_a_group_that_reads_a_copy_of_the_targets_topic_can_go_back() -> None:
    original = TopicPartition("t", 0)  # in B; its copy in A is B.t, at offsets that are smaller by 90
    reverse = Translator(_store(original, (100, 10), (101, 11)))
    translation = GroupTranslation(_SELECTION, Translator(OffsetSyncStore()), reverse)
    found = translation.checkpoint("g", TopicPartition("B.t", 0), OffsetAndMetadata(11))
    assert found == Checkpoint("g", original, 11, 101)
    without = GroupTranslation(_SELECTION, Translator(OffsetSyncStore()))
    assert without.checkpoint("g", TopicPartition("B.t", 0), OffsetAndMetadata(11)) is None


# -- group offsets -----------------------------------------------------------------------------------------------------


def _group(state: GroupState, *members: MemberDescription) -> GroupDescription:
    return GroupDescription("g", "classic", "consumer", state, "", members, 0)


def test_groups_with_members_are_left_alone() -> None:
    member = MemberDescription("m", "c", "/h")
    assert may_write(None)
    assert may_write(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND))
    assert may_write(_group(GroupState.EMPTY))
    assert may_write(_group(GroupState.DEAD))
    assert not may_write(_group(GroupState.STABLE, member))
    assert not may_write(_group(GroupState.PREPARING_REBALANCE))
    assert not may_write(_group(GroupState.EMPTY, member))
    assert not may_write(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))


def test_offsets_of_groups_only_move_forward() -> None:
    checkpoints = {TopicPartition("A.t", n): Checkpoint("g", TopicPartition("A.t", n), 100, 50, "m") for n in range(4)}
    present = {TopicPartition("A.t", n): OffsetAndMetadata(offset) for n, offset in enumerate((49, 50, 51))}
    assert offsets_to_write(checkpoints, present) == {
        TopicPartition("A.t", 0): OffsetAndMetadata(50, "m"),
        TopicPartition("A.t", 3): OffsetAndMetadata(50, "m"),
    }


def test_share_groups_and_other_protocols_are_not_translated() -> None:
    kinds = [
        ("consumer", "classic"),
        ("consumer", "consumer"),
        ("", "classic"),
        ("connect", "classic"),
        ("share", "share"),
    ]
    groups = [GroupListing(f"g{n}", protocol, type=kind) for n, (protocol, kind) in enumerate(kinds)]
    assert [group.group_id for group in groups if is_consumer_group(group)] == ["g0", "g1", "g2"]


# -- losses ------------------------------------------------------------------------------------------------------------


def test_positions_outside_of_the_log_are_losses() -> None:
    partitions = [TopicPartition("t", n) for n in range(5)]
    positions = dict.fromkeys(partitions, 5)
    starts = dict(zip(partitions, (5, 8, 0, 0), strict=False))
    ends = dict(zip(partitions, (5, 20, 4, 5), strict=False))
    found = find_losses(positions, starts, ends)
    assert found == [MirrorLoss(partitions[1], 5, 8, 20), MirrorLoss(partitions[2], 5, 0, 4)]
    assert "3 offsets of t-1 were deleted" in str(found[0])
    assert "t-2 in the source cluster ends at 4" in str(found[1])


# -- lag ---------------------------------------------------------------------------------------------------------------


def _batch(upstream: int, count: int, end: int, newest_ms: int, now_ms: int, lost: int = 0) -> CopiedRanges:
    run = OffsetRun(upstream, 0, count)
    next_upstream = run.last_upstream + 1
    return CopiedRanges(0, now_ms, [CopiedRange(_T0, [run], next_upstream, count, 10 * count, newest_ms, end, lost)])


def test_lag_is_known_in_records_bytes_and_seconds() -> None:
    board = LagBoard()
    board.started({_T0: 0})
    board.copied(_batch(0, 5, end=20, newest_ms=1_000, now_ms=2_000, lost=2))
    assert board.lags(4_000) == [MirrorLag(_T0, 5, 20, 15, 150, 3.0, copied=5, lost=2)]
    board.copied(_batch(5, 15, end=20, newest_ms=2_000, now_ms=3_000))
    assert board.lags(9_000) == [MirrorLag(_T0, 20, 20, 0, 0, 0.0, copied=20, lost=2)]
    board.ends_seen({_T0: 22, TopicPartition("unknown", 0): 5}, 9_000)
    (lag,) = board.lags(10_000)
    assert (lag.records, lag.bytes, lag.seconds) == (2, 20, 8.0)


def test_before_the_first_record_the_lag_grows_from_when_it_was_seen() -> None:
    board = LagBoard()
    board.started({_T0: 3})
    assert board.lags(500) == [MirrorLag(_T0, 3, None, None, None, None)], "not 0: the source has not answered"
    board.ends_seen({_T0: 3}, 800)
    assert board.lags(900) == [MirrorLag(_T0, 3, 3, 0, 0, 0.0)]
    board.ends_seen({_T0: 4}, 1_000)
    board.ends_seen({_T0: 9}, 5_000)
    assert board.lags(6_000) == [MirrorLag(_T0, 3, 9, 6, None, 5.0)]
    board.started({TopicPartition("t", 1): 0})
    assert [lag.partition.partition for lag in board.lags(0)] == [1]
