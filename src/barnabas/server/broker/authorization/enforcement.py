"""Shell: enforces the table of needs: wraps the handler of an API, so that the request is authorized before it.

The wrapper does not suspend between the start of a request and that of its handler, so that it changes no order. The
exception are requests with many topics, after which the connection starts no other request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from inspect import signature
from types import CoroutineType
from typing import Any, Final, Protocol

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.transport.ports import CloseConnectionError
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.checks import CLUSTER, REFUSALS, ClientRights
from barnabas.server.broker.authorization.grants import Grants, grants_of
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.authorization.table import ApiAccess
from barnabas.server.broker.request_context import RequestContext

Handle = Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Message | None]]

_REFUSED: Final = REFUSALS[CLUSTER]


class HasAuthorizer(Protocol):
    """The part of the services of a broker or of a controller that is needed here."""

    @property
    def authorizer(self) -> Authorizer | None: ...

    @property
    def access(self) -> Mapping[int, ApiAccess]:
        """The table of the listener: `BROKER_ACCESS` or `CONTROLLER_ACCESS`."""
        ...


def access_of(key: int, services: HasAuthorizer) -> ApiAccess:
    """The entry of an API. Raises CloseConnectionError if there is none: what no rule protects is not served."""
    access = services.access.get(key)
    if access is None:
        raise CloseConnectionError(f"{APIS[ApiKey(key)].name} has no entry in the table of needs, so it is not served.")
    return access


def authorized(handle: Handle, key: int, services: HasAuthorizer) -> Handle:
    """The handler of an API with its authorization; `handle` itself if the node has no authorizer."""
    authorizer = services.authorizer
    if authorizer is None:
        return handle
    grants = grants_of(authorizer)
    access = access_of(key, services)
    if access.cluster_operation is not None:
        return _needs_cluster(handle, access, authorizer, grants)
    if access.guard:
        guarded = _guarded(handle, access, authorizer, grants)
        if grants is None or not access.granted:
            return guarded
        granted: Handle = _function(access.granted)(handle, guarded, grants)
        return granted
    return handle


def undecoded_right(key: int, services: HasAuthorizer) -> AclOperation | None:
    """The operation on the cluster without which a request is refused before it is decoded; None if the authorization
    depends on the request, or if the node has no authorizer."""
    if services.authorizer is None:
        return None
    access = access_of(key, services)
    return None if access.refuse else access.cluster_operation


def refuse_undecoded(operation: AclOperation, services: HasAuthorizer, ctx: RequestContext) -> Message | None:
    """The response to a request without the right `operation` on the cluster; None if the client has the right. Raises
    KafkaError if the authorizer is not ready."""
    authorizer = services.authorizer
    assert authorizer is not None
    if ClientRights(authorizer, grants_of(authorizer), ctx).allows(operation, CLUSTER):
        return None
    return _refusal(ctx.api_key)


def _refusal(key: int) -> Message:
    response: Any = APIS[ApiKey(key)].response()
    response.error_code = _REFUSED
    if hasattr(response, "error_message"):
        response.error_message = _REFUSED.message
    result: Message = response
    return result


def _needs_cluster(handle: Handle, access: ApiAccess, authorizer: Authorizer, grants: Grants | None) -> Handle:
    operation = access.cluster_operation
    assert operation is not None
    refuse: Callable[[Any, int, ErrorCode], Message] | None = _function(access.refuse) if access.refuse else None

    async def handle_authorized(services: Any, ctx: RequestContext, request: Any) -> Message | None:
        if ClientRights(authorizer, grants, ctx).allows(operation, CLUSTER):
            return await handle(services, ctx, request)
        return _refusal(ctx.api_key) if refuse is None else refuse(request, ctx.api_version, _REFUSED)

    return handle_authorized


def _guarded(handle: Handle, access: ApiAccess, authorizer: Authorizer, grants: Grants | None) -> Handle:
    guard = _function(access.guard)
    wants_context = len(signature(guard).parameters) > 3

    def handle_authorized(services: Any, ctx: RequestContext, request: Any) -> Coroutine[Any, Any, Message | None]:
        auth = ClientRights(authorizer, grants, ctx)
        outcome = guard(services, auth, request, ctx) if wants_context else guard(services, auth, request)
        if outcome is None:  # no coroutine around that of the handler: most requests are allowed
            return handle(services, ctx, request)
        return carry_out(outcome, services, ctx, request)

    async def carry_out(outcome: Any, services: Any, ctx: RequestContext, request: Any) -> Message | None:
        if isinstance(outcome, CoroutineType):
            ctx.runs_alone = True  # the wait for the checks must not change the order of the connection's requests
            outcome = await outcome
            ctx.has_many_entries = True
            if outcome is None:
                return await handle(services, ctx, request)
        if isinstance(outcome, Message):
            return outcome
        response = await handle(services, ctx, request)
        completed = outcome(response)
        if isinstance(completed, CoroutineType):
            completed = await completed
        answer: Message | None = completed
        return answer

    return handle_authorized


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(".")
    found: Callable[..., Any] = getattr(
        import_module(f"barnabas.server.broker.authorization.guards.{module}"), function
    )
    return found
