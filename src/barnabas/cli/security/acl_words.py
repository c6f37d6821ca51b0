"""Machine: turns the options of `barnabas acls` and `kafka-acls` into ACLs and filters, and ACLs into words."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Final, TypeVar

from barnabas.protocol.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    known,
)
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import parse_principal

T = TypeVar("T")
_O, _R = AclOperation, AclResourceType

SUPPORTED: Final[dict[AclResourceType, frozenset[AclOperation]]] = {
    _R.TOPIC: frozenset(
        {_O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
    ),
    _R.GROUP: frozenset({_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    _R.CLUSTER: frozenset(
        {
            _O.CREATE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
            _O.ALTER,
            _O.DESCRIBE,
        }
    ),
    _R.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT}),
    _R.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    _R.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""The operations that exist on a type of resource (Kafka's `AclEntry.supportedOperations`). ALL exists on each."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Resources, and what principals may or may not do with them."""

    topics: list[str] | None = None
    groups: list[str] | None = None
    transactional_ids: list[str] | None = None
    cluster: bool = False
    tokens: list[str] | None = None
    users: list[str] | None = None
    principals: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    deny: bool = False
    pattern_type: PatternType = PatternType.LITERAL

    @property
    def resources(self) -> list[tuple[AclResourceType, str]]:
        """The type and the name of each resource."""
        named = (
            (_R.TOPIC, self.topics),
            (_R.GROUP, self.groups),
            (_R.TRANSACTIONAL_ID, self.transactional_ids),
            (_R.DELEGATION_TOKEN, self.tokens),
            (_R.USER, self.users),
        )
        found = [(kind, name.strip()) for kind, names in named for name in names or ()]
        if self.cluster:
            found.append((_R.CLUSTER, CLUSTER_NAME))
        return found

    @property
    def names_nothing(self) -> bool:
        return not self.resources


def bindings_of(grant: Grant) -> list[AclBinding]:
    """The ACLs of a grant: every operation on every resource for every principal and host. Raises ValueError."""
    operations = [operation_named(name) for name in grant.operations]
    if grant.names_nothing:
        raise ValueError("name a resource: --topic, --group, --transactional-id or --cluster")
    return [acl for kind, name in grant.resources for acl in _acls(grant, kind, name, operations)]


def producer_grants(grant: Grant, *, idempotent: bool = False) -> list[AclBinding]:
    """What a producer to the topics needs, and to the transactional ids if there are any. Raises ValueError."""
    if not grant.topics:
        raise ValueError("--producer needs a --topic")
    acls: list[AclBinding] = []
    for kind, name in grant.resources:
        if kind is _R.TOPIC:
            acls += _acls(grant, kind, name, [_O.WRITE, _O.DESCRIBE, _O.CREATE])
        elif kind is _R.TRANSACTIONAL_ID:
            acls += _acls(grant, kind, name, [_O.WRITE, _O.DESCRIBE])
    if idempotent:
        acls += _acls(grant, _R.CLUSTER, CLUSTER_NAME, [_O.IDEMPOTENT_WRITE])
    return acls


def consumer_grants(grant: Grant) -> list[AclBinding]:
    """What a consumer of the topics in the groups needs. Raises ValueError."""
    if not grant.topics or not grant.groups:
        raise ValueError("--consumer needs a --topic and a --group")
    acls: list[AclBinding] = []
    for kind, name in grant.resources:
        if kind is _R.TOPIC:
            acls += _acls(grant, kind, name, [_O.READ, _O.DESCRIBE])
        elif kind is _R.GROUP:
            acls += _acls(grant, kind, name, [_O.READ])
    return acls


def _acls(grant: Grant, kind: AclResourceType, name: str, operations: list[AclOperation]) -> list[AclBinding]:
    pattern = PatternType.LITERAL if kind is _R.CLUSTER else grant.pattern_type
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ValueError(f"a pattern type of {pattern.name.lower()} can select ACLs, but not be that of a new one")
    for operation in operations:
        if operation is not _O.ALL and operation not in SUPPORTED[kind]:
            valid = ", ".join(sorted(operation_word(each) for each in SUPPORTED[kind] | {_O.ALL}))
            raise ValueError(f"ResourceType {kind.name} only supports operations {valid}")
    permission = AclPermissionType.DENY if grant.deny else AclPermissionType.ALLOW
    return [
        AclBinding(kind, name, pattern, principal_named(principal), host.strip(), operation, permission)
        for principal, operation, host in product(grant.principals, operations, grant.hosts)
    ]


def filters_of(grant: Grant) -> list[AclBindingFilter]:
    """The filters that select the ACLs of a grant; what the grant leaves out is not compared. Raises ValueError."""
    resources = [
        AclBindingFilter(kind, name, PatternType.LITERAL if kind is _R.CLUSTER else grant.pattern_type)
        for kind, name in grant.resources
    ] or [AclBindingFilter()]
    permission = AclPermissionType.DENY if grant.deny else AclPermissionType.ANY
    return [
        selected._replace(principal=principal, host=host, operation=operation, permission_type=permission)
        for selected in resources
        for principal in _or_any([principal_named(name) for name in grant.principals])
        for host in _or_any([host.strip() for host in grant.hosts])
        for operation in [operation_named(name) for name in grant.operations] or [_O.ANY]
    ]


def _or_any(values: list[T]) -> list[T | None]:
    return [*values] or [None]


def principal_named(text: str) -> str:
    """The principal of an option. Raises ValueError."""
    return str(parse_principal(text.strip()))


def operation_named(text: str) -> AclOperation:
    """An operation by any of its spellings: `IdempotentWrite`, `idempotent_write`, `IDEMPOTENT-WRITE`."""
    wanted = text.strip().replace("_", "").replace("-", "").lower()
    for operation in AclOperation:
        if operation > _O.ANY and operation.name.replace("_", "").lower() == wanted:
            return operation
    valid = ", ".join(operation_word(operation) for operation in AclOperation if operation > _O.ANY)
    raise ValueError(f"{text} is not an operation; the operations are {valid}")


def pattern_type_named(text: str) -> PatternType:
    """Raises ValueError."""
    try:
        found = PatternType[text.strip().upper()]
    except KeyError:
        found = PatternType.UNKNOWN
    if found is PatternType.UNKNOWN:
        raise ValueError(f"{text} is not a pattern type; use literal, prefixed, any or match")
    return found


def operation_word(operation: AclOperation) -> str:
    """The name of an operation in the options of Kafka's tools, for example `IdempotentWrite`."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def row_of(acl: AclBinding) -> tuple[str, ...]:
    """An ACL as words: the type, name and pattern type of the resource, principal, host, operation, permission."""
    return (
        known(AclResourceType, acl.resource_type).camel,
        acl.resource_name,
        known(PatternType, acl.pattern_type).name,
        acl.principal,
        acl.host,
        operation_word(known(AclOperation, acl.operation)),
        known(AclPermissionType, acl.permission_type).name,
    )
