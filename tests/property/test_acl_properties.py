"""`AclIndex` against a naive model that walks over all ACLs, as Kafka's StandardAuthorizerPropertyTest does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.security.acl_index import AclIndex
from barnabas.protocol.security.acls import ALLOWED_BY, AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation

O = AclOperation  # noqa: E741 - as in the audit log
NAMES = st.text("ab*", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a", "Group:*"])
HOSTS = st.sampled_from(["*", "1.1.1.1", "2.2.2.2", "::1"])
OPERATIONS = st.sampled_from([O.ALL, O.READ, O.WRITE, O.DESCRIBE, O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS])
TYPES = st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP])
ACLS = st.builds(
    AclBinding,
    TYPES,
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    PRINCIPALS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([AclPermissionType.DENY, AclPermissionType.ALLOW]),
)
CHANGES = st.lists(st.tuples(st.integers(0, 12), st.none() | ACLS), max_size=40)


def _applies(acl: AclBinding, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in ("*", host)


def _covers(acl: AclBinding, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def naive(acls: list[AclBinding], principal: str, host: str, operation: int, kind: int, name: str) -> bool | None:
    """None if no ACL exists for the resource."""
    relevant = [acl for acl in acls if _covers(acl, kind, name)]
    mine = [acl for acl in relevant if _applies(acl, principal, host)]
    if any(acl.permission_type == AclPermissionType.DENY and acl.operation in (operation, O.ALL) for acl in mine):
        return False
    if any(acl.permission_type == AclPermissionType.ALLOW and acl.operation in ALLOWED_BY[operation] for acl in mine):
        return True
    return False if relevant else None


def naive_by_type(acls: list[AclBinding], principal: str, host: str, operation: int, kind: int) -> bool:
    """Some name exists for which the ACLs of the operation allow it: the model tries every name that could matter."""
    mine = [
        acl
        for acl in acls
        if acl.resource_type == kind and _applies(acl, principal, host) and acl.operation in (operation, O.ALL)
    ]
    names = {acl.resource_name for acl in mine} | {acl.resource_name + "~" for acl in mine} | {"~"}
    if any(
        acl.permission_type == AclPermissionType.DENY
        and acl.pattern_type == PatternType.LITERAL
        and acl.resource_name == "*"
        for acl in mine
    ):
        return False
    return any(naive(mine, principal, host, operation, kind, name) for name in names if name != "*")


@settings(max_examples=300, deadline=None)
@given(CHANGES, st.booleans(), st.lists(st.tuples(PRINCIPALS, HOSTS, OPERATIONS, TYPES, NAMES), min_size=1, max_size=8))
def test_decisions_equal_those_of_the_model(
    changes: list[tuple[int, AclBinding | None]],
    default: bool,
    asked: list[tuple[str, str, int, int, str]],
) -> None:
    index: AclIndex[int] = AclIndex(allow_if_no_acl=default)
    present: dict[int, AclBinding] = {}
    for key, acl in changes:
        if acl is None:
            index.remove(key)
            present.pop(key, None)
        else:
            index.put(key, acl)
            present[key] = acl
        principal, host, operation, kind, name = asked[key % len(asked)]
        index.decide(principal, host, operation, kind, name)  # remembered, and forgotten with the next change
        index.decide_by_type(principal, host, operation, kind)
    acls = list(present.values())
    assert sorted(index) == sorted(acls)
    for principal, host, operation, kind, name in asked:
        expected = naive(acls, principal, host, operation, kind, name)
        assert index.decide(principal, host, operation, kind, name).allowed == (
            default if expected is None else expected
        )


@settings(max_examples=300, deadline=None)
@given(st.lists(ACLS, max_size=8), PRINCIPALS, HOSTS, st.sampled_from([O.READ, O.WRITE]))
def test_some_resource_of_a_type_is_allowed_exactly_if_a_name_is(
    acls: list[AclBinding], principal: str, host: str, operation: AclOperation
) -> None:
    index: AclIndex[int] = AclIndex(enumerate(acls))
    expected = naive_by_type(acls, principal, host, operation, AclResourceType.TOPIC)
    assert index.decide_by_type(principal, host, operation, AclResourceType.TOPIC) == expected
