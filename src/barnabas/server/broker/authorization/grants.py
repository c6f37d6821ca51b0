"""Machine: remembers what the authorizer has allowed, so that a request that repeats is allowed by one look-up.

The authorizer forgets all of it in the same call in which it learns of a changed rule. Only permissions are remembered:
a denial is always asked for again, and is written to the audit log each time. While permissions are written to the
audit log, too, nothing is looked up here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.protocol.security.acl_index import NAME_LENGTH_MAX
from barnabas.protocol.security.principals import KafkaPrincipal

GRANTS_MAX: Final = 20_000
"""The most permissions that are remembered; with the next one all are forgotten."""

Grant = tuple[int, str | None, KafkaPrincipal, str]
"""The operation and the type of the resource (`operation_on`), the name of the resource, the client and its host."""


def operation_on(operation: int, resource_type: int) -> int:
    """An operation on resources of a type as one number: the hash of an enum is slow."""
    return int(resource_type) << 8 | int(operation)


class Grants:
    """What an authorizer has allowed since its rules changed last."""

    __slots__ = ("hits", "is_audited", "known")

    def __init__(self, is_audited: Callable[[], bool] = lambda: False) -> None:
        """`is_audited` says whether permissions are written to the audit log now, so that none may be looked up."""
        self.known: set[Grant] = set()
        """Always the same set: handlers keep it."""
        self.is_audited = is_audited
        self.hits = 0
        """The number of operations that were allowed by a look-up. For metrics."""

    def remember(self, grant: Grant) -> None:
        """Remember a permission, unless the name is so long that clients could fill the memory with such names."""
        name = grant[1]
        if name is None or len(name) > NAME_LENGTH_MAX:
            return
        if len(self.known) >= GRANTS_MAX:
            self.known.clear()
        self.known.add(grant)

    def forget(self) -> None:
        """Called by the authorizer when any of its rules has changed."""
        if self.known:
            self.known.clear()


def grants_of(authorizer: Any) -> Grants | None:
    """The memory of an authorizer; None if it wants to be asked each time.

    The class itself must have the attribute `grants`. That of a base class does not count: a class that extends
    `StandardAuthorizer` may decide by the time of day.
    """
    if "grants" not in vars(type(authorizer)):
        return None
    found: Grants = authorizer.grants
    return found
