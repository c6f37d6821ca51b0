"""MirrorMaker's properties file: keys, precedence, and what is refused."""

from __future__ import annotations

import pytest

from barnabas.spark.mirror.config.keys import PAIR_KEYS
from barnabas.spark.mirror.config.parsing import parse_mirror_config
from barnabas.spark.mirror.config.values import Job, MirrorConfig, PairConfig, Replication
from barnabas.spark.mirror.errors import MirrorConfigError
from barnabas.spark.mirror.naming.policies import DefaultReplicationPolicy, IdentityReplicationPolicy

_TWO = {"clusters": "A, B", "A.bootstrap.servers": "a:9092", "B.bootstrap.servers": "b:9092"}


def _parse(given: dict[str, str]) -> MirrorConfig:
    return parse_mirror_config({**_TWO, **given})


def _a_to_b(given: dict[str, str]) -> PairConfig:
    pair = _parse({"A->B.enabled": "true", **given}).pair("A", "B")
    assert pair is not None
    return pair


def test_every_pair_writes_heartbeats_and_only_enabled_pairs_copy() -> None:
    config = _parse({"A->B.enabled": "true"})
    assert [(pair.name, pair.enabled) for pair in config.pairs] == [("A->B", True), ("B->A", False)]
    assert [pair.name for pair in config.towards(["B"])] == ["A->B"]


def test_a_pair_without_heartbeats_that_is_not_enabled_does_nothing() -> None:
    config = _parse({"A->B.enabled": "true", "emit.heartbeats.enabled": "false"})
    assert [pair.name for pair in config.pairs] == ["A->B"]
    config = _parse({"A->B.enabled": "true", "B->A.emit.heartbeats.enabled": "false"})
    assert [pair.name for pair in config.pairs] == ["A->B"]


def test_the_defaults_are_those_of_mirrormaker() -> None:
    pair = _a_to_b({})
    assert pair.policy == DefaultReplicationPolicy()
    assert pair.replication == Replication(topics=2, heartbeats=3, checkpoints=3, offset_syncs=3, offsets=3)
    assert (pair.refresh_topics, pair.sync_configs, pair.sync_acls) == (Job(True, 600),) * 3
    assert pair.refresh_groups == Job(True, 600)
    assert (pair.checkpoints, pair.sync_groups) == (Job(True, 60), Job(False, 60))
    assert pair.heartbeats == Job(True, 1)
    assert pair.offset_syncs_in_source
    assert pair.offset_syncs_topic == "mm2-offset-syncs.B.internal"
    assert pair.checkpoints_topic == "A.checkpoints.internal"
    assert pair.offsets_topic == "mm2-offsets.A.internal"
    assert not pair.use_source_defaults
    assert pair.fail_on_data_loss
    assert pair.source_clients.consumer["isolation.level"] == "read_committed"


def test_a_key_of_a_pair_wins_over_the_same_key_for_all_pairs() -> None:
    config = _parse({"A->B.enabled": "true", "B->A.enabled": "true", "topics": "x.*", "A->B.topics": "orders, pay.*"})
    ours, theirs = config.pair("A", "B"), config.pair("B", "A")
    assert ours is not None
    assert theirs is not None
    assert [ours.topics(name) for name in ("orders", "payments", "xy")] == [True, True, False]
    assert [theirs.topics(name) for name in ("orders", "payments", "xy")] == [False, False, True]


def test_settings_of_clients_have_the_precedence_of_kafkas_mirrormaker() -> None:
    pair = _a_to_b(
        {
            "security.protocol": "PLAINTEXT",
            "A.request.timeout.ms": "1",
            "A->B.consumer.fetch.min.bytes": "2",
            "A->B.consumer.fetch.max.wait.ms": "2",
            "A->B.consumer.fetch.max.bytes": "2",
            "A.consumer.fetch.max.wait.ms": "3",
            "A.consumer.fetch.max.bytes": "3",
            "A->B.source.consumer.fetch.max.bytes": "4",
            "A.producer.linger.ms": "9",
            "A.consumer.group.id": "ours",
        }
    )
    assert pair.source_clients.consumer == {
        "bootstrap.servers": "a:9092",
        "security.protocol": "PLAINTEXT",
        "request.timeout.ms": "1",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "fetch.min.bytes": "2",
        "fetch.max.wait.ms": "3",
        "fetch.max.bytes": "4",
    }
    assert pair.source_clients.producer["linger.ms"] == "9"
    assert pair.target_clients.producer == {"bootstrap.servers": "b:9092", "security.protocol": "PLAINTEXT"}


def test_settings_of_the_workers_producer_can_be_overridden_for_a_pair() -> None:
    pair = _a_to_b({"B.producer.acks": "all", "A->B.producer.override.linger.ms": "7"})
    assert pair.target_clients.producer == {"bootstrap.servers": "b:9092", "acks": "all", "linger.ms": "7"}


def test_the_identity_policy_and_separators_are_read() -> None:
    identity = _a_to_b({"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"})
    assert identity.policy == IdentityReplicationPolicy("A")
    dashed = _a_to_b({"replication.policy.separator": "-"})
    assert dashed.checkpoints_topic == "A-checkpoints-internal"
    assert dashed.offset_syncs_topic == "mm2-offset-syncs-B-internal"
    assert dashed.offsets_topic == "mm2-offsets.A.internal"


def test_offset_syncs_in_the_target_cluster_are_named_after_the_source() -> None:
    pair = _a_to_b({"offset-syncs.topic.location": "target"})
    assert pair.offset_syncs_topic == "mm2-offset-syncs.A.internal"
    assert pair.offset_syncs_clients is pair.target_clients


def test_exactly_once_can_be_switched_off_for_a_target() -> None:
    assert _a_to_b({}).transactional
    pair = _a_to_b({"B.exactly.once.source.support": "disabled", "A.consumer.isolation.level": "read_uncommitted"})
    assert not pair.transactional
    assert pair.source_clients.consumer["isolation.level"] == "read_uncommitted"


def test_keys_without_an_effect_are_listed_with_the_reason() -> None:
    config = _parse(
        {
            "metric.names.formats": "new",
            "B.config.storage.replication.factor": "1",
            "key.converter": "x",
            "A->B.offset.lag.max": "5",
        }
    )
    assert [name for name, _ in config.unused] == [
        "metric.names.formats",
        "B.config.storage.replication.factor",
        "key.converter",
        "A->B.offset.lag.max",
    ]


def test_all_keys_of_a_pair_are_accepted_for_all_pairs_and_for_one() -> None:
    for key in PAIR_KEYS.values():
        _parse({key.name: key.default, f"A->B.{key.name}": key.default} if key.default else {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"clusters": "A"}, "at least two clusters"),
        ({"clusters": "A,B,C"}, "needs C.bootstrap.servers"),
        ({"clusters": "A,B,A"}, "twice"),
        ({"topicz": "x"}, "did you mean topics?"),
        ({"A->B.refresh.topics.intervall.seconds": "x"}, "did you mean A->B.refresh.topics.interval.seconds?"),
        ({"A->C.enabled": "true"}, "A->C is not a pair"),
        ({"A.topics": "x"}, "key of a pair"),
        ({"topics": "("}, "not valid"),
        ({"topics.blacklist": "x"}, "topics.exclude"),
        ({"A.consumer.fetch.min.byte": "1"}, "A.consumer.fetch.min.bytes"),
        ({"transforms": "x"}, "not supported"),
        ({"enabled": "yes"}, "true or false"),
        ({"replication.factor": "0"}, "from 1"),
        ({"on.data.loss": "ignore"}, "one of fail, report"),
        ({"replication.policy.class": "com.example.Mine"}, "other classes are not supported"),
        ({"topic.filter.class": "com.example.Mine"}, "other classes are not supported"),
        ({"A.consumer.isolation.level": "read_uncommitted"}, "aborted transactions"),
        ({"B.exactly.once.source.support": "maybe"}, "enabled, preparing or disabled"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_what_to_do(given: dict[str, str], message: str) -> None:
    with pytest.raises(MirrorConfigError) as refused:
        _parse({"A->B.enabled": "true", **given})
    assert message in str(refused.value)
