"""What a link copies besides records: topics by patterns, configs, group offsets, ACLs; and commands on mirrors."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.server.links.coordination.mirror_commands import (
    MirrorCommand,
    MirrorOperation,
    plan_change,
    plan_start,
    stopped_topics,
)
from barnabas.server.links.coordination.planning import (
    PATTERNS_MAX,
    LocalFacts,
    MirrorBounds,
    Patterns,
    SourceFacts,
    acl_rule,
    check_link,
    plan_acls,
    plan_configs,
    plan_offsets,
    plan_topics,
)
from barnabas.server.links.coordination.values import MirrorId, MirrorStored, StoredLink

LINK = StoredLink("l", "k:9092", topics=("orders.*",), topics_exclude=(r"orders\.tmp.*",))


def there(name: str, partitions: int = 2, number: int = 1, *, internal: bool = False) -> SourceFacts:
    return SourceFacts(name, UUID(int=number), partitions, internal)


def here(name: str, link: str | None = "l", mode: str = "active", partitions: int = 2, number: int = 1) -> LocalFacts:
    return LocalFacts(name, UUID(int=number), partitions, link, mode)


def test_new_topics_are_discovered_and_stopped_ones_are_left_alone() -> None:
    source = [there("orders.eu"), there("orders.tmp.1"), there("payments"), there("orders.us"), there("orders.old")]
    local = {"orders.us": here("orders.us", mode="stopped"), "orders.old": here("orders.old", link=None)}
    plan = plan_topics(LINK, source, local)
    assert plan.create == (there("orders.eu"),)
    assert plan.grow == ()
    assert [name for name, _ in plan.conflicts] == ["orders.old"]


def test_internal_topics_are_never_discovered() -> None:
    everything = StoredLink("l", "k:9092", topics=(".*",))
    source = [there("__consumer_offsets", internal=True), there("__mirror_state"), there("a")]
    assert plan_topics(everything, source, {}).create == (there("a"),)


def test_mirrors_follow_the_number_of_partitions() -> None:
    source = [there("orders.eu", 5), there("orders.us", 1)]
    local = {"orders.eu": here("orders.eu"), "orders.us": here("orders.us")}
    assert plan_topics(LINK, source, local).grow == (("orders.eu", 5),)


def test_a_mirror_of_another_link_is_a_conflict() -> None:
    plan = plan_topics(LINK, [there("orders.eu")], {"orders.eu": here("orders.eu", link="other")})
    assert plan.conflicts == (("orders.eu", "Topic orders.eu is a mirror of link other."),)


def test_configs_follow_the_source_except_those_of_the_cluster() -> None:
    known = ["retention.ms", "cleanup.policy", "min.insync.replicas", "mirror.name", "segment.bytes"]
    source = {"retention.ms": "5", "cleanup.policy": "compact", "min.insync.replicas": "2", "unknown.config": "1"}
    local = {"mirror.name": "l", "retention.ms": "5", "segment.bytes": "7", "min.insync.replicas": "1"}
    assert plan_configs(source, local, known) == {"cleanup.policy": "compact", "segment.bytes": None}


def test_offsets_stay_within_the_records_that_are_here() -> None:
    source = {("t", 0): 50, ("t", 1): 900, ("t", 2): 3, ("u", 0): 1, ("t", 3): 60}
    bounds = {
        ("t", 0): MirrorBounds(0, 100),
        ("t", 1): MirrorBounds(0, 100),
        ("t", 2): MirrorBounds(10, 100),
        ("t", 3): MirrorBounds(0, 100),
    }
    assert plan_offsets(source, bounds, {("t", 3): 60}) == {("t", 0): 50, ("t", 1): 100, ("t", 2): 10}


def acl(name: str, operation: AclOperation, principal: str = "User:a") -> AclBinding:
    return AclBinding(
        AclResourceType.TOPIC, name, PatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
    )


def test_acls_are_copied_by_rules_once() -> None:
    source = [acl("t", AclOperation.READ), acl("t", AclOperation.WRITE), acl("u", AclOperation.READ, "User:b")]
    rules = ["topic;t;*;allow;User:*", "topic;*;read;*;User:b"]
    assert plan_acls(rules, source, [source[0]]) == [source[1], source[2]]
    assert plan_acls(["group;*;*;*;*", "topic;t;describe_configs;allow;*"], source, []) == []


def test_an_acl_of_a_newer_source_is_left_out() -> None:
    newer = AclBinding(99, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW)
    assert plan_acls(["*;*;*;*;*"], [newer, acl("t", AclOperation.READ)], []) == [acl("t", AclOperation.READ)]


def test_bad_rules_and_patterns_are_refused() -> None:
    with pytest.raises(ValueError, match="is no ACL rule"):
        acl_rule("topic;t;read")
    with pytest.raises(KafkaError) as error:
        check_link(StoredLink("l", "k:1", topics=("(",)))
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    with pytest.raises(KafkaError, match="patterns"):
        Patterns(["a"] * (PATTERNS_MAX + 1), ())


def test_a_start_creates_new_mirrors_and_takes_back_stopped_ones() -> None:
    source = {name: there(name) for name in ("orders.a", "orders.b", "orders.c", "payments")}
    local = {
        "orders.b": here("orders.b", link="old", mode="stopped"),
        "orders.c": here("orders.c", link=None, number=9),
    }
    commands = plan_start(LINK, ["orders.*", "absent"], source, local)
    assert [(c.topic, c.create is not None, c.mode, c.error and c.error.code) for c in commands] == [
        ("orders.a", True, None, None),
        ("orders.b", False, "active", None),
        ("orders.c", False, None, ErrorCode.INVALID_REQUEST),
        ("absent", False, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_changes_are_those_of_the_links_mirrors_only() -> None:
    local = [
        here("a"),
        here("b", mode="paused"),
        here("c", mode="stopping"),
        here("d", link="x"),
        here("e", mode="stopped"),
    ]
    paused = plan_change(LINK, MirrorOperation.PAUSE, [".*"], local)
    assert [(c.topic, c.mode, c.error is not None) for c in paused] == [
        ("a", "paused", False), ("b", None, False), ("c", None, True),
    ]  # fmt: skip
    assert plan_change(LINK, MirrorOperation.STOP, ["b"], local) == [MirrorCommand("b", 2, mode="stopping")]
    (missing,) = plan_change(LINK, MirrorOperation.RESUME, ["e"], local)
    assert missing.error is not None and missing.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_stopped_when_all_its_partitions_are() -> None:
    topic = here("a", mode="stopping")
    states = {MirrorId("l", topic.topic_id, 0): MirrorStored(7), MirrorId("l", topic.topic_id, 1): MirrorStored(6)}
    assert stopped_topics("l", [topic], states) == []
    states[MirrorId("l", topic.topic_id, 1)] = MirrorStored(7)
    assert stopped_topics("l", [topic, here("b")], states) == [topic]
