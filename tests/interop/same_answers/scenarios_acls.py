"""Table: scenarios about ACLs and the filters that select them. Each is played to both brokers.

The brokers have an authorizer, and the client is a super user.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from barnabas.protocol.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.wire.messages.describe_acls import DescribeAclsRequest
from tests.interop.same_answers.talk import Talk

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
LITERAL, PREFIXED = 3, 4
READ, WRITE, DESCRIBE, ALL = 3, 4, 8, 2
DENY, ALLOW = 2, 3
VERSIONS = (1, 2, 3)


def create_acls(talk: Talk) -> None:
    """One field at a time has each of its values, good and bad."""
    _delete_all(talk)
    for kind in (*range(9), 99, -1):
        for name in ("foo", "kafka-cluster"):
            _create(talk, f"type {kind} of {name}", resource_type=kind, resource_name=name)
    for pattern in (*range(6), 99, -1):
        _create(talk, f"pattern {pattern}", resource_pattern_type=pattern)
        _create(talk, f"pattern {pattern} of *", resource_pattern_type=pattern, resource_name="*")
    for operation in (*range(17), 99, -1):
        _create(talk, f"operation {operation}", operation=operation)
        _create(talk, f"operation {operation} of the cluster", operation=operation, **_OF_CLUSTER)
    for permission in (*range(5), 99, -1):
        _create(talk, f"permission {permission}", permission_type=permission)
    for name in ("", "*", " ", "a b", "a,b", "é", "x" * 300):
        _create(talk, f"name {name!r}", resource_name=name)
        _create(talk, f"prefix {name!r}", resource_name=name, resource_pattern_type=PREFIXED)
    for principal in ("", "alice", ":", ":alice", "User:", "User:*", "Group:*", "User:a:b", "user:a", "User: a", "*"):
        _create(talk, f"principal {principal!r}", principal=principal)
    for host in ("", "*", "10.0.0.1", "::1", "localhost", "no such host", "10.0.0.1:9092", "10.0.0", "256.1.1.1"):
        _create(talk, f"host {host!r}", host=host)
    _create(talk, "twice", versions=(1, 3))
    talk.ask("nothing", CreateAclsRequest(creations=[]), 3)
    both = [_creation(resource_name="one"), _creation(resource_name=""), _creation(resource_name="two")]
    talk.ask("two good ones and a bad one", CreateAclsRequest(creations=both), 3)
    _wait_described(talk, "two")
    talk.ask("all that were created", DescribeAclsRequest(**_ANY), 3)
    _delete_all(talk)


def describe_acls(talk: Talk) -> None:
    """Every pair of name and pattern type, and the values of the other fields one at a time."""
    _fill(talk)
    for name, pattern in product((None, "foo", "fo", "foobar", "*", "", "bar"), (*range(5), 9)):
        request = DescribeAclsRequest(**{**_ANY, "resource_name_filter": name, "pattern_type_filter": pattern})
        talk.ask(f"name {name!r}, pattern {pattern}", request, 3)
        request = DescribeAclsRequest(**{**request_fields(request), "resource_type_filter": TOPIC})
        talk.ask(f"topic {name!r}, pattern {pattern}", request, 2)
    for field, values in _VALUES.items():
        for value in values:
            talk.each(f"{field} {value!r}", DescribeAclsRequest(**{**_ANY, field: value}), VERSIONS)
    for principal, operation in product(("User:alice", "User:*"), (READ, ALL, DESCRIBE)):
        request = DescribeAclsRequest(**{**_ANY, "principal_filter": principal, "operation": operation})
        talk.ask(f"{operation} of {principal}", request, 3)
    _delete_all(talk)


def delete_acls(talk: Talk) -> None:
    """The same filters, each of which deletes what it selects from ACLs that are made anew."""
    for pattern in (*range(5), 9):
        _fill(talk)
        chosen = {"resource_name_filter": "foo", "pattern_type_filter": pattern}
        talk.ask(f"pattern {pattern}", DeleteAclsRequest(filters=[DeleteAclsFilter(**{**_ANY, **chosen})]), 3)
    for field, values in _VALUES.items():
        for version, value in zip(VERSIONS * 9, values, strict=False):
            _fill(talk)
            talk.ask(
                f"{field} {value!r}", DeleteAclsRequest(filters=[DeleteAclsFilter(**{**_ANY, field: value})]), version
            )
    _fill(talk)
    exact = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="foo",
        pattern_type_filter=LITERAL,
        principal_filter="User:alice",
        host_filter="*",
        operation=READ,
        permission_type=ALLOW,
    )
    talk.ask("exactly one, twice in a request", DeleteAclsRequest(filters=[exact, exact]), 3)
    talk.ask("it again", DeleteAclsRequest(filters=[exact]), 3)
    bad = DeleteAclsFilter(**{**_ANY, "operation": 99})
    talk.ask("a bad filter", DeleteAclsRequest(filters=[bad]), 3)
    talk.ask("nothing", DeleteAclsRequest(filters=[]), 3)
    _delete_all(talk)


_OF_CLUSTER: dict[str, Any] = {"resource_type": CLUSTER, "resource_name": "kafka-cluster"}
_ANY: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_VALUES: dict[str, tuple[Any, ...]] = {
    "resource_type_filter": (0, 1, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER, 99),
    "principal_filter": ("User:alice", "User:*", "User:bob", "Group:alice", "alice", ""),
    "host_filter": ("*", "10.0.0.1", "10.0.0.2", ""),
    "operation": (0, ALL, READ, WRITE, DESCRIBE, 15, 99),
    "permission_type": (0, DENY, ALLOW, 99),
}
_ACLS: tuple[dict[str, Any], ...] = (
    {},
    {"resource_pattern_type": PREFIXED},
    {"resource_name": "fo", "resource_pattern_type": PREFIXED},
    {"resource_name": "fo"},
    {"resource_name": "*"},
    {"resource_name": "*", "resource_pattern_type": PREFIXED},
    {"resource_name": "foobar"},
    {"resource_type": GROUP, "resource_name": "bar"},
    {"resource_type": GROUP},
    {"resource_type": TRANSACTIONAL_ID},
    {"resource_type": DELEGATION_TOKEN, "operation": DESCRIBE},
    {"resource_type": USER, "resource_name": "User:alice", "operation": 13},
    {**_OF_CLUSTER, "operation": 12},
    {"principal": "User:*"},
    {"principal": "Group:alice"},
    {"host": "10.0.0.1"},
    {"operation": ALL},
    {"operation": WRITE, "permission_type": DENY},
    {"permission_type": DENY},
)


def request_fields(request: DescribeAclsRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in _ANY}


def _creation(**fields: Any) -> AclCreation:
    good = {
        "resource_type": TOPIC,
        "resource_name": "foo",
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**good, **fields})


def _create(talk: Talk, label: str, *, versions: tuple[int, ...] = (3,), **fields: Any) -> None:
    talk.each(label, CreateAclsRequest(creations=[_creation(**fields)]), versions)


def _fill(talk: Talk) -> None:
    """Make the ACLs of `_ACLS`, and no others."""
    _delete_all(talk)
    response = talk.quietly(CreateAclsRequest(creations=[_creation(**fields) for fields in _ACLS]), 3)
    assert all(result.error_code == 0 for result in response.results), response
    talk.until(lambda: _number(talk) == len(_ACLS), "the ACLs")


def _delete_all(talk: Talk) -> None:
    talk.quietly(DeleteAclsRequest(filters=[DeleteAclsFilter(**_ANY)]), 3)
    talk.until(lambda: _number(talk) == 0, "no ACLs")


def _number(talk: Talk) -> int:
    response = talk.quietly(DescribeAclsRequest(**_ANY), 3)
    return sum(len(resource.acls) for resource in response.resources)


def _wait_described(talk: Talk, name: str) -> None:
    request = DescribeAclsRequest(**{**_ANY, "resource_name_filter": name})
    talk.until(lambda: bool(talk.quietly(request, 3).resources), f"the ACL of {name}")


SCENARIOS = (create_acls, describe_acls, delete_acls)
