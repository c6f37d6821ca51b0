"""The decisions of `AclIndex`, after Kafka's StandardAuthorizerTest and AuthorizerTest, and the filters of ACLs."""

from __future__ import annotations

import pytest

from barnabas.protocol.security.acl_index import DEFAULT_ALLOW, DEFAULT_DENY, AclIndex
from barnabas.protocol.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    known,
)
from barnabas.protocol.security.operations import AclOperation

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
O = AclOperation  # noqa: E741 - the tests below are tables of operations
ALICE, BOB = "User:alice", "User:bob"


def acl(
    operation: AclOperation,
    name: str = "foo",
    *,
    kind: AclResourceType = TOPIC,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    deny: bool = False,
) -> AclBinding:
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def index(*acls: AclBinding, allow_if_no_acl: bool = False) -> AclIndex[int]:
    return AclIndex(enumerate(acls), allow_if_no_acl=allow_if_no_acl)


def allowed(
    acls: AclIndex[int],
    operation: AclOperation,
    name: str = "foo",
    principal: str = ALICE,
    host: str = "10.0.0.1",
    kind: AclResourceType = TOPIC,
) -> bool:
    return acls.decide(principal, host, operation, kind, name).allowed


def test_without_acls_the_default_applies() -> None:
    assert index().decide(ALICE, "h", O.READ, TOPIC, "foo") == DEFAULT_DENY
    assert index(allow_if_no_acl=True).decide(ALICE, "h", O.READ, TOPIC, "foo") == DEFAULT_ALLOW


def test_one_acl_on_the_resource_turns_the_default_into_deny() -> None:
    acls = index(acl(O.READ, principal=BOB), allow_if_no_acl=True)
    assert not allowed(acls, O.READ)
    assert allowed(acls, O.READ, "other")
    assert allowed(acls, O.READ, kind=GROUP)


@pytest.mark.parametrize(
    "pattern", [acl(O.READ, "*", principal=BOB), acl(O.READ, "f", pattern=PREFIXED, principal=BOB)]
)
def test_acls_of_a_wildcard_and_of_a_prefix_count_for_the_default(pattern: AclBinding) -> None:
    assert not allowed(index(pattern, allow_if_no_acl=True), O.READ)


@pytest.mark.parametrize("given", [O.READ, O.WRITE, O.DELETE, O.ALTER, O.DESCRIBE, O.ALL])
def test_operations_that_imply_describe(given: AclOperation) -> None:
    assert allowed(index(acl(given)), O.DESCRIBE)


@pytest.mark.parametrize("given", [O.CREATE, O.DESCRIBE_CONFIGS, O.ALTER_CONFIGS, O.CLUSTER_ACTION])
def test_operations_that_do_not_imply_describe(given: AclOperation) -> None:
    assert not allowed(index(acl(given)), O.DESCRIBE)


def test_alter_configs_implies_describe_configs_and_not_the_reverse() -> None:
    assert allowed(index(acl(O.ALTER_CONFIGS)), O.DESCRIBE_CONFIGS)
    assert not allowed(index(acl(O.DESCRIBE_CONFIGS)), O.ALTER_CONFIGS)


def test_a_deny_implies_nothing() -> None:
    acls = index(acl(O.READ, deny=True), acl(O.DESCRIBE))
    assert allowed(acls, O.DESCRIBE)
    assert not allowed(acls, O.READ)


def test_deny_all_denies_every_operation() -> None:
    acls = index(acl(O.ALL, deny=True), acl(O.READ), acl(O.ALL))
    assert not any(allowed(acls, operation) for operation in (O.READ, O.WRITE, O.DESCRIBE))


@pytest.mark.parametrize(
    "deny",
    [acl(O.READ, deny=True), acl(O.READ, "*", deny=True), acl(O.READ, "fo", pattern=PREFIXED, deny=True)],
)
@pytest.mark.parametrize("allow", [acl(O.READ), acl(O.READ, "*"), acl(O.READ, "f", pattern=PREFIXED)])
def test_deny_wins_whatever_the_patterns_are(deny: AclBinding, allow: AclBinding) -> None:
    assert not allowed(index(deny, allow), O.READ)
    assert not allowed(index(allow, deny), O.READ)
    assert allowed(index(allow), O.READ)


def test_a_literal_name_is_no_prefix() -> None:
    acls = index(acl(O.READ, "foo"))
    assert not allowed(acls, O.READ, "foobar")
    assert not allowed(acls, O.READ, "fo")


def test_prefixes_apply_to_names_that_begin_with_them() -> None:
    acls = index(acl(O.READ, "foo", pattern=PREFIXED))
    assert allowed(acls, O.READ, "foo")
    assert allowed(acls, O.READ, "foobar")
    assert not allowed(acls, O.READ, "fo")


def test_a_prefixed_star_is_a_prefix_and_no_wildcard() -> None:
    acls = index(acl(O.READ, "*", pattern=PREFIXED))
    assert not allowed(acls, O.READ, "foo")
    assert allowed(acls, O.READ, "*foo")


def test_the_wildcard_principal_is_that_of_users_and_applies_to_every_type() -> None:
    assert allowed(index(acl(O.READ, principal="User:*")), O.READ)
    assert allowed(index(acl(O.READ, principal="User:*")), O.READ, principal="Group:staff")
    assert not allowed(index(acl(O.READ, principal="Group:*")), O.READ, principal="Group:staff")


def test_principals_are_compared_with_their_type() -> None:
    assert not allowed(index(acl(O.READ, principal="Group:alice")), O.READ)
    assert not allowed(index(acl(O.READ, principal="User:Alice")), O.READ)


def test_hosts_are_compared_as_addresses() -> None:
    assert allowed(index(acl(O.READ, host="10.0.0.1")), O.READ)
    assert not allowed(index(acl(O.READ, host="10.0.0.2")), O.READ)
    assert not allowed(index(acl(O.READ, host="localhost")), O.READ, host="127.0.0.1")
    assert allowed(index(acl(O.READ, host="0:0:0:0:0:0:0:1")), O.READ, host="::1")
    assert allowed(index(acl(O.READ, host="10.0.0.1")), O.READ, host="::ffff:10.0.0.1")
    assert not allowed(index(acl(O.READ, host="10.0.0.1", deny=True), acl(O.READ)), O.READ, host="::ffff:10.0.0.1")


def test_the_rule_is_named_in_the_words_of_the_audit_log() -> None:
    acls = index(acl(O.WRITE, "foo_", pattern=PREFIXED, principal=BOB))
    assert acls.decide(BOB, "h", O.WRITE, TOPIC, "foo_1").rule == (
        "MatchingAcl(acl=StandardAcl(resourceType=TOPIC, resourceName=foo_, patternType=PREFIXED, principal=User:bob, "
        "host=*, operation=WRITE, permissionType=ALLOW))"
    )
    assert acls.decide(BOB, "h", O.READ, TOPIC, "foo_1").rule == "DefaultDeny"


def test_removing_one_acl_keeps_the_others() -> None:
    """CVE-2024-27309: with more than one ACL left, the removal of one dropped the rest."""
    acls = index(acl(O.READ), acl(O.WRITE), acl(O.READ, principal=BOB, deny=True), acl(O.ALL, "f", pattern=PREFIXED))
    acls.remove(0)
    assert allowed(acls, O.WRITE)
    assert not allowed(acls, O.READ, principal=BOB)
    assert allowed(acls, O.READ)  # by the prefix
    acls.remove(3)
    assert not allowed(acls, O.READ)
    assert allowed(acls, O.WRITE)
    acls.remove(1)
    acls.remove(2)
    assert len(acls) == 0
    assert index(allow_if_no_acl=True).decide(ALICE, "h", O.READ, TOPIC, "foo") == DEFAULT_ALLOW


def test_an_equal_acl_under_another_key_stays_when_the_first_is_removed() -> None:
    acls = index(acl(O.READ), acl(O.READ))
    acls.remove(0)
    assert allowed(acls, O.READ)
    acls.remove(1)
    assert not allowed(acls, O.READ)


def test_a_change_takes_effect_on_decisions_made_before() -> None:
    acls = index()
    assert not allowed(acls, O.READ)
    acls.put(7, acl(O.READ))
    assert allowed(acls, O.READ)
    acls.put(7, acl(O.READ, deny=True))
    assert not allowed(acls, O.READ)
    acls.clear()
    assert acls.decide(ALICE, "h", O.READ, TOPIC, "foo") == DEFAULT_DENY


# ---- by the type of the resource


def by_type(*acls: AclBinding, principal: str = ALICE, allow_if_no_acl: bool = False) -> bool:
    return index(*acls, allow_if_no_acl=allow_if_no_acl).decide_by_type(principal, "10.0.0.1", O.WRITE, TOPIC)


def test_any_allow_is_enough() -> None:
    assert by_type(acl(O.WRITE))
    assert by_type(acl(O.WRITE, "f", pattern=PREFIXED))
    assert by_type(acl(O.ALL, "*", principal="User:*"))
    assert not by_type()
    assert not by_type(acl(O.READ))
    assert not by_type(acl(O.WRITE, kind=GROUP))
    assert not by_type(acl(O.WRITE, host="10.9.9.9"))
    assert not by_type(acl(O.WRITE, principal=BOB))
    assert by_type(allow_if_no_acl=True)


def test_an_allow_that_a_deny_covers_does_not_count() -> None:
    assert not by_type(acl(O.WRITE), acl(O.WRITE, deny=True))
    assert not by_type(acl(O.WRITE), acl(O.ALL, deny=True))
    assert not by_type(acl(O.WRITE), acl(O.WRITE, "*", deny=True))
    assert not by_type(acl(O.WRITE, "*"), acl(O.WRITE, "*", deny=True))
    assert not by_type(acl(O.WRITE), acl(O.WRITE, "f", pattern=PREFIXED, deny=True))
    assert not by_type(acl(O.WRITE, "fo", pattern=PREFIXED), acl(O.WRITE, "f", pattern=PREFIXED, deny=True))


def test_an_allow_that_a_deny_does_not_cover_counts() -> None:
    assert by_type(acl(O.WRITE), acl(O.READ, deny=True))
    assert by_type(acl(O.WRITE), acl(O.WRITE, "bar", deny=True))
    assert by_type(acl(O.WRITE), acl(O.WRITE, deny=True, principal=BOB))
    assert by_type(acl(O.WRITE, "f", pattern=PREFIXED), acl(O.WRITE, "foo", pattern=PREFIXED, deny=True))
    assert by_type(acl(O.WRITE, "f", pattern=PREFIXED), acl(O.WRITE, "f", deny=True))
    assert by_type(acl(O.WRITE, "*"), acl(O.WRITE, "foo", deny=True), acl(O.WRITE, "f", pattern=PREFIXED, deny=True))


# ---- filters


def test_an_empty_filter_selects_every_acl() -> None:
    assert AclBindingFilter().matches(acl(O.READ))
    assert AclBindingFilter().problem is None


@pytest.mark.parametrize(
    ("pattern_type", "selected"),
    [
        (PatternType.ANY, {"foo LITERAL", "foo PREFIXED"}),
        (PatternType.LITERAL, {"foo LITERAL"}),
        (PatternType.PREFIXED, {"foo PREFIXED"}),
        (PatternType.MATCH, {"foo LITERAL", "foo PREFIXED", "fo PREFIXED", "* LITERAL"}),
    ],
)
def test_the_pattern_types_of_a_filter(pattern_type: PatternType, selected: set[str]) -> None:
    patterns = [("foo", LITERAL), ("foo", PREFIXED), ("fo", PREFIXED), ("fo", LITERAL), ("*", LITERAL), ("*", PREFIXED)]
    chosen = AclBindingFilter(resource_name="foo", pattern_type=pattern_type)
    found = {f"{name} {kind.name}" for name, kind in patterns if chosen.matches(acl(O.READ, name, pattern=kind))}
    assert found == selected


@pytest.mark.parametrize(
    "refused",
    [
        AclBindingFilter(resource_type=GROUP),
        AclBindingFilter(principal=BOB),
        AclBindingFilter(principal="User:*"),
        AclBindingFilter(host="10.0.0.1"),
        AclBindingFilter(operation=O.WRITE),
        AclBindingFilter(operation=O.ALL),
        AclBindingFilter(permission_type=AclPermissionType.DENY),
        AclBindingFilter(resource_name="bar"),
    ],
)
def test_every_field_of_a_filter_is_compared(refused: AclBindingFilter) -> None:
    assert not refused.matches(acl(O.READ))


def test_unknown_codes_are_problems() -> None:
    assert AclBindingFilter(resource_type=0).problem == "Unknown patternFilter."
    assert AclBindingFilter(pattern_type=9).problem == "Unknown patternFilter."
    assert AclBindingFilter(operation=99).problem == "Unknown entryFilter."
    assert AclBindingFilter(permission_type=0).problem == "Unknown entryFilter."
    assert known(AclResourceType, -3) is AclResourceType.UNKNOWN
