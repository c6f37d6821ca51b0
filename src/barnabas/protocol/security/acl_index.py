"""Machine: decides by ACLs whether an operation is allowed; the rules are those of Kafka's `StandardAuthorizerData`.

The ACLs that apply to a resource are those with a LITERAL pattern of its name, with the LITERAL pattern `*`, and with a
PREFIXED pattern that is a prefix of its name. An ACL applies to a client with its principal, or with `User:*`, from its
host, or from `*`.

    a DENY for the operation or for ALL   ->  denied
    an ALLOW that covers the operation    ->  allowed
    ACLs exist for the resource           ->  denied, whoever the ACLs are for
    no ACL at all exists for the resource ->  the default (`allow.everyone.if.no.acl.found`)

A check reads three or more entries of dicts, whatever the number of ACLs:

    types[TOPIC].literal["orders"]["User:alice"] -> (acl, ...)
                .literal["*"]
                .prefixed["or"], .prefixed["orders"]       one look-up for each length of a prefix that occurs
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.protocol.security.acls import (
    ALLOWED_BY,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AclBinding,
    AclPermissionType,
    PatternType,
    canonical_host,
)
from barnabas.protocol.security.operations import AclOperation

KeyT = TypeVar("KeyT", bound=Hashable)

RULINGS_MAX: Final = 20_000
"""The most decisions that the index remembers; with the next one it forgets all."""


NAME_LENGTH_MAX: Final = 256
"""Decisions on longer names are not remembered: a client could fill the memory with them."""


class Ruling(NamedTuple):
    """A decision, and the ACL or the rule on which it is based."""

    allowed: bool
    basis: AclBinding | str

    @property
    def rule(self) -> str:
        """The basis in the words of Kafka's audit log."""
        return self.basis if isinstance(self.basis, str) else f"MatchingAcl(acl={self.basis})"


DEFAULT_ALLOW: Final = Ruling(allowed=True, basis="DefaultAllow")
DEFAULT_DENY: Final = Ruling(allowed=False, basis="DefaultDeny")

_ByPrincipal = dict[str, tuple[AclBinding, ...]]


class _OfType:
    """The ACLs of one type of resource."""

    __slots__ = ("by_principal", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _ByPrincipal] = {}
        self.prefixed: dict[str, _ByPrincipal] = {}
        self.lengths: dict[int, int] = {}
        """The lengths of the prefixes, and how many prefixes have the length."""
        self.by_principal: dict[str, dict[AclBinding, int]] = {}
        """The ACLs of a principal, each with the number of entries that are equal to it."""

    def put(self, acl: AclBinding) -> None:
        owned = self.by_principal.setdefault(acl.principal, {})
        owned[acl] = owned.get(acl, 0) + 1
        if owned[acl] > 1:
            return
        is_prefix = acl.pattern_type == PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        if is_prefix and acl.resource_name not in patterns:
            length = len(acl.resource_name)
            self.lengths[length] = self.lengths.get(length, 0) + 1
        entries = patterns.setdefault(acl.resource_name, {})
        entries[acl.principal] = (*entries.get(acl.principal, ()), acl)

    def remove(self, acl: AclBinding) -> None:
        owned = self.by_principal[acl.principal]
        owned[acl] -= 1
        if owned[acl]:
            return
        del owned[acl]
        if not owned:
            del self.by_principal[acl.principal]
        is_prefix = acl.pattern_type == PatternType.PREFIXED
        patterns = self.prefixed if is_prefix else self.literal
        entries = patterns[acl.resource_name]
        left = tuple(other for other in entries[acl.principal] if other != acl)
        if left:
            entries[acl.principal] = left
            return
        del entries[acl.principal]
        if entries:
            return
        del patterns[acl.resource_name]
        if is_prefix:
            length = len(acl.resource_name)
            self.lengths[length] -= 1
            if not self.lengths[length]:
                del self.lengths[length]

    def of_resource(self, name: str) -> Iterator[_ByPrincipal]:
        """The ACLs that apply to a resource, one mapping for each pattern."""
        exact = self.literal.get(name)
        if exact is not None:
            yield exact
        if name != WILDCARD:
            every = self.literal.get(WILDCARD)
            if every is not None:
                yield every
        if self.lengths:
            prefixed, present = self.prefixed, len(name)
            for length in self.lengths:
                if length <= present:
                    found = prefixed.get(name[:length])
                    if found is not None:
                        yield found


class AclIndex(Generic[KeyT]):
    """All ACLs of a cluster, by their keys. It changes in place, and remembers decisions until the next change."""

    def __init__(self, acls: Iterable[tuple[KeyT, AclBinding]] = (), *, allow_if_no_acl: bool = False) -> None:
        """`allow_if_no_acl` is `allow.everyone.if.no.acl.found`."""
        self._default = DEFAULT_ALLOW if allow_if_no_acl else DEFAULT_DENY
        self._by_key: dict[KeyT, AclBinding] = {}
        self._types: dict[int, _OfType] = {}
        self._rulings: dict[tuple[str, str, str, int], Ruling] = {}
        self._by_type: dict[tuple[str, str, int, int], bool] = {}
        for key, acl in acls:
            self.put(key, acl)

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[AclBinding]:
        return iter(self._by_key.values())

    def put(self, key: KeyT, acl: AclBinding) -> None:
        """Add an ACL, in place of any other with the same key."""
        if key in self._by_key:
            self.remove(key)
        self._by_key[key] = acl
        self._types.setdefault(acl.resource_type, _OfType()).put(acl)
        self._forget()

    def remove(self, key: KeyT) -> None:
        """Remove an ACL; an unknown key is ignored."""
        acl = self._by_key.pop(key, None)
        if acl is not None:
            self._types[acl.resource_type].remove(acl)
            self._forget()

    def clear(self) -> None:
        self._by_key.clear()
        self._types.clear()
        self._forget()

    def decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Ruling:
        """Whether `principal` may do `operation` from `host` on the resource."""
        asked = (name, principal, host, resource_type << 8 | operation)  # the hash of an enum is slow
        try:
            return self._rulings[asked]
        except KeyError:
            found = self._decide(principal, host, operation, resource_type, name)
            if len(name) <= NAME_LENGTH_MAX:
                if len(self._rulings) >= RULINGS_MAX:
                    self._rulings.clear()
                self._rulings[asked] = found
            return found

    def _decide(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> Ruling:
        of_type = self._types.get(resource_type)
        if of_type is None:
            return self._default
        host = canonical_host(host)
        allowing = ALLOWED_BY[operation]
        has_acls = False
        allow: AclBinding | None = None
        for entries in of_type.of_resource(name):
            has_acls = True
            for owner in (principal, WILDCARD_PRINCIPAL):
                for acl in entries.get(owner, ()):
                    if acl.host != WILDCARD and canonical_host(acl.host) != host:
                        continue
                    if acl.permission_type == AclPermissionType.ALLOW:
                        if allow is None and acl.operation in allowing:
                            allow = acl
                    elif acl.operation in (operation, AclOperation.ALL):
                        return Ruling(allowed=False, basis=acl)
        if allow is not None:
            return Ruling(allowed=True, basis=allow)
        return DEFAULT_DENY if has_acls else self._default

    def decide_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether `principal` may do `operation` on at least one resource of the type, existing or not
        (`Authorizer.authorizeByResourceType`). Operations imply nothing here, as in Kafka."""
        asked = (principal, host, operation, resource_type)
        try:
            return self._by_type[asked]
        except KeyError:
            if len(self._by_type) >= RULINGS_MAX:
                self._by_type.clear()
            found = self._by_type[asked] = self._decide_by_type(*asked)
            return found

    def _decide_by_type(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        # A name that no topic has, as in Kafka, which asks for "hardcode": the default rule may allow everything.
        if self.decide(principal, host, operation, resource_type, "hardcode").allowed:
            return True
        of_type = self._types.get(resource_type)
        if of_type is None:
            return False
        host = canonical_host(host)
        denied: tuple[set[str], set[str]] = (set(), set())
        allowed: tuple[set[str], set[str]] = (set(), set())
        for owner in (principal, WILDCARD_PRINCIPAL):
            for acl in of_type.by_principal.get(owner, ()):
                if acl.operation not in (operation, AclOperation.ALL):
                    continue
                if acl.host != WILDCARD and canonical_host(acl.host) != host:
                    continue
                names = allowed if acl.permission_type == AclPermissionType.ALLOW else denied
                names[acl.pattern_type == PatternType.PREFIXED].add(acl.resource_name)
        denied_names, denied_prefixes = denied
        allowed_names, allowed_prefixes = allowed
        if WILDCARD in denied_names:
            return False
        if WILDCARD in allowed_names:
            return True
        lengths = sorted({len(prefix) for prefix in denied_prefixes})

        def is_open(name: str) -> bool:
            return not any(name[:length] in denied_prefixes for length in lengths if length <= len(name))

        return any(is_open(name) for name in allowed_names - denied_names) or any(map(is_open, allowed_prefixes))

    def _forget(self) -> None:
        if self._rulings:
            self._rulings.clear()
        if self._by_type:
            self._by_type.clear()
