"""Replication policies, internal topics, cycles and filters, with the cases of Kafka's own tests."""

from __future__ import annotations

import pytest

from barnabas.spark.mirror.naming.filters import (
    CONFIGS_EXCLUDE_DEFAULT,
    GROUPS_EXCLUDE_DEFAULT,
    TOPICS_EXCLUDE_DEFAULT,
    NameFilter,
    TopicSelection,
)
from barnabas.spark.mirror.naming.policies import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    checkpoints_topic,
    is_cycle,
    is_heartbeats_topic,
    is_internal_topic,
    offset_syncs_topic,
    original_topic,
    upstream_clusters,
)

_DEFAULT = DefaultReplicationPolicy()
_IDENTITY = IdentityReplicationPolicy("A")


def _selection(policy: DefaultReplicationPolicy | IdentityReplicationPolicy, topics: str = ".*") -> TopicSelection:
    return TopicSelection(policy, "A", "B", NameFilter([topics], TOPICS_EXCLUDE_DEFAULT.split(",")).selects)


@pytest.mark.parametrize(
    ("topic", "source", "upstream"),
    [
        ("A.orders", "A", "orders"),
        ("A.B.orders", "A", "B.orders"),
        ("orders.v1", "orders", "v1"),
        ("orders", None, None),
        ("orders.", None, None),
        ("A..x", "A", ".x"),
    ],
)
def test_a_copy_is_named_after_its_source(topic: str, source: str | None, upstream: str | None) -> None:
    assert _DEFAULT.topic_source(topic) == source
    assert _DEFAULT.upstream_topic(topic) == upstream


def test_a_separator_may_have_any_characters() -> None:
    policy = DefaultReplicationPolicy("__")
    assert policy.remote_topic("A", "t") == "A__t"
    assert policy.topic_source("A__t") == "A"
    assert policy.upstream_topic("A__t") == "t"
    assert checkpoints_topic(policy, "A") == "A__checkpoints__internal"
    assert checkpoints_topic(DefaultReplicationPolicy("__", False), "A") == "A.checkpoints.internal"


def test_the_identity_policy_keeps_names_but_those_of_heartbeats() -> None:
    assert _IDENTITY.remote_topic("A", "orders") == "orders"
    assert _IDENTITY.remote_topic("A", "heartbeats") == "A.heartbeats"
    assert _IDENTITY.topic_source("orders") == "A"
    assert _IDENTITY.upstream_topic("orders") == "orders"
    assert _IDENTITY.topic_source("heartbeats") is None
    assert _IDENTITY.topic_source("C.heartbeats") == "C"
    assert original_topic(_IDENTITY, "orders") == "orders"


def test_internal_topics_have_their_names() -> None:
    assert offset_syncs_topic(_DEFAULT, "B") == "mm2-offset-syncs.B.internal"
    assert checkpoints_topic(_DEFAULT, "A") == "A.checkpoints.internal"
    internal = ["__consumer_offsets", ".x", "mm2-offsets.A.internal", "A.checkpoints.internal"]
    assert [
        name for name in [*internal, "orders", "heartbeats", "my.internal"] if is_internal_topic(_DEFAULT, name)
    ] == (internal)
    assert is_internal_topic(DefaultReplicationPolicy("-"), "mm2-offsets.A.internal")


def test_heartbeats_are_recognized_however_often_they_were_copied() -> None:
    assert [is_heartbeats_topic(_DEFAULT, name) for name in ("heartbeats", "A.heartbeats", "B.A.heartbeats", "x")] == [
        True,
        True,
        True,
        False,
    ]
    assert upstream_clusters(_DEFAULT, "B.A.heartbeats") == ["B", "A"]


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("orders", False), ("B.orders", True), ("C.B.orders", True), ("C.orders", False), ("C.A.orders", True)],
)
def test_a_topic_that_was_in_the_target_or_came_back_is_a_cycle(topic: str, *, expected: bool) -> None:
    assert is_cycle(_DEFAULT, topic, "A", "B") is expected


def test_the_identity_policy_sees_no_cycles() -> None:
    assert not is_cycle(_IDENTITY, "orders", "A", "B")
    assert is_cycle(_IDENTITY, "B.heartbeats", "A", "B")


def test_the_default_filters_leave_out_what_belongs_to_kafka() -> None:
    selection = _selection(_DEFAULT)
    topics = ["orders", "heartbeats", "mm2-configs.A.internal", "t.replica", "__x", "B.orders", "C.orders", ".hidden"]
    assert [name for name in topics if selection.selects(name)] == ["orders", "heartbeats", "C.orders"]
    groups = NameFilter([".*"], GROUPS_EXCLUDE_DEFAULT.split(","))
    assert [name for name in ("g", "console-consumer-1", "connect-x", "__g") if groups.selects(name)] == ["g"]
    configs = NameFilter([".*"], CONFIGS_EXCLUDE_DEFAULT.split(","))
    assert not configs.selects("min.insync.replicas")
    assert configs.selects("retention.ms")


def test_heartbeats_are_copied_although_no_pattern_names_them() -> None:
    assert _selection(_DEFAULT, "orders").selects("C.heartbeats")
    quiet = TopicSelection(_DEFAULT, "A", "B", NameFilter(["orders"]).selects, heartbeats=False)
    assert not quiet.selects("heartbeats")


def test_patterns_match_whole_names() -> None:
    names = NameFilter(["a.c", "x|y"], ["abc"])
    assert [name for name in ("abc", "adc", "adcd", "x", "y", "xy") if names.selects(name)] == ["adc", "x", "y"]
    assert not NameFilter([]).selects("a")
