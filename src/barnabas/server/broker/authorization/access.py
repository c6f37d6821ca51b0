"""Value: what the client of an API must be allowed to do. The table of APIs (`broker/apis.py`) has it for each API and
each kind of listener.

It is one of

- `open_to_all`: every client may use the API
- `cluster`: the whole request needs one operation on the cluster, which is checked before the request is decoded
- `forwarded`: the controller authorizes the client, whose principal and address the broker sends in the Envelope
- `guarded`: a function in `guards/` checks the entries of the request

The needs are those of Kafka's KafkaApis and ControllerApis. `needs` describes them for people and for tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.checks import CLUSTER

Refuse = Callable[[Any, int, ErrorCode], Message]
"""Builds the refusal of a whole request: of the request, its version and the error code."""


class Need(NamedTuple):
    """An operation that the client must be allowed to do. Needs with the same `group` other than 0 are alternatives."""

    operation: AclOperation
    resource_type: AclResourceType
    group: int = 0


class ApiAccess(Struct, frozen=True):
    """What one API needs on the listeners of brokers, or of controllers."""

    needs: tuple[Need, ...] = ()
    cluster_operation: AclOperation | None = None
    """The operation on the cluster that the whole request needs."""
    guard: str = ""
    """A module of `guards/`, whose function of the API's name is the guard, or else `module.function`."""
    granted: str = ""
    """`module.function` in `guards/`: builds the handler of requests that were allowed before, and need no guard. For
    APIs whose every microsecond counts."""
    refuse: str = ""
    """`module.function` in `guards/` that builds the refusal, if the response has no top-level error code."""
    is_forwarded: bool = False
    reason: str = ""
    """Why every client may use the API, or what the guard does beyond its needs."""


def open_to_all(reason: str, guard: str = "") -> ApiAccess:
    return ApiAccess(reason=reason, guard=guard)


def cluster(operation: AclOperation, refuse: str = "") -> ApiAccess:
    return ApiAccess((Need(operation, CLUSTER),), operation, refuse=refuse)


def forwarded() -> ApiAccess:
    return ApiAccess(is_forwarded=True)


def guarded(guard: str, *needs: Need, reason: str = "", granted: str = "") -> ApiAccess:
    return ApiAccess(needs, guard=guard, granted=granted, reason=reason)
