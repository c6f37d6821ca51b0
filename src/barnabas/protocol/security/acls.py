"""Value: access control entries (ACLs), and the filters that select them.

The integers of the fields are Kafka's codes: `AclResourceType`, `PatternType`, `AclOperation` and `AclPermissionType`.
The semantics are those of Kafka's `AclBinding` and `AclBindingFilter` (KIP-140, KIP-290).
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from barnabas.protocol.security.operations import AclOperation

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""
WILDCARD: Final = "*"
"""As the name of a LITERAL pattern: every resource of the type. As a host: every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
"""Every principal, of every type. No other type has a wildcard."""


class AclResourceType(IntEnum):
    """The types of resources that ACLs protect (`ResourceType`)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def camel(self) -> str:
        """The name in the audit log and in the options of tools, for example `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


class PatternType(IntEnum):
    """How the name of a pattern selects resources (KIP-290). ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermissionType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


E = TypeVar("E", bound=IntEnum)


def known(kind: type[E], code: int) -> E:
    """The member of an enum of this module for a code of the wire; its member 0, UNKNOWN, for any other code."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


class AclBinding(NamedTuple):
    """One access control entry: it allows or denies an operation of a principal on the resources of a pattern."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    def __str__(self) -> str:
        """As Kafka writes an ACL into the audit log."""
        return (
            f"StandardAcl(resourceType={known(AclResourceType, self.resource_type).name}, "
            f"resourceName={self.resource_name}, patternType={known(PatternType, self.pattern_type).name}, "
            f"principal={self.principal}, host={self.host}, operation={known(AclOperation, self.operation).name}, "
            f"permissionType={known(AclPermissionType, self.permission_type).name})"
        )


class AclBindingFilter(NamedTuple):
    """Selects ACLs. None and ANY accept every value of their field; principal and host are compared as text."""

    resource_type: int = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = AclPermissionType.ANY

    @property
    def problem(self) -> str | None:
        """Why no ACL can be selected; None for a valid filter."""
        for kind, code in (
            (AclResourceType, self.resource_type),
            (PatternType, self.pattern_type),
        ):
            if known(kind, code) == 0:
                return "Unknown patternFilter."
        if not known(AclOperation, self.operation) or not known(AclPermissionType, self.permission_type):
            return "Unknown entryFilter."
        return None

    @property
    def only_binding(self) -> AclBinding | None:
        """The only ACL that the filter can select; None if it can select several."""
        if (
            self.resource_type == AclResourceType.ANY
            or self.resource_name is None
            or self.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)
            or self.principal is None
            or self.host is None
            or self.operation == AclOperation.ANY
            or self.permission_type == AclPermissionType.ANY
        ):
            return None
        return AclBinding(
            self.resource_type,
            self.resource_name,
            self.pattern_type,
            self.principal,
            self.host,
            self.operation,
            self.permission_type,
        )

    def matches(self, acl: AclBinding) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    def _matches_name(self, acl: AclBinding) -> bool:
        """ANY, LITERAL and PREFIXED select patterns of this very name. MATCH selects every pattern that applies to a
        resource of the name (`ResourcePatternFilter.matches`)."""
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return acl.resource_name == name
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


_O = AclOperation
_IMPLIED_BY: Final[dict[int, frozenset[int]]] = {
    _O.DESCRIBE: frozenset({_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.ALTER_CONFIGS}),
}
ALLOWED_BY: Final[dict[int, frozenset[int]]] = {
    operation: frozenset({operation, _O.ALL}) | _IMPLIED_BY.get(operation, frozenset()) for operation in AclOperation
}
"""For each operation the operations whose ALLOW entries allow it. A DENY entry implies nothing: it denies its own
operation, and ALL denies every one."""


@lru_cache(maxsize=4096)
def canonical_host(host: str) -> str:
    """The text by which hosts are compared: Java and Python write the same IPv6 address in different ways, and an
    IPv4 client of a socket for both families has a mapped address. A text that is not an address stays as it is, and
    so matches no client: host names are never resolved."""
    if ":" not in host:
        return host
    import ipaddress  # imported here: most clusters have no IPv6 addresses in their ACLs

    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)
