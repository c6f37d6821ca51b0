"""Shell: enforces the table of needs: wraps the handler of an API, so that the request is authorized before it.

The wrapper does not suspend between the start of a request and that of its handler, so that it changes no order. The
exception are requests with many topics, after which the connection starts no other request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from importlib import import_module
from inspect import signature
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.access import ApiAccess
from barnabas.server.broker.authorization.checks import CLUSTER, REFUSALS, ClientRights
from barnabas.server.broker.authorization.grants import Grants, grants_of
from barnabas.server.broker.authorization.outcomes import Later, Narrowed, Outcome
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.served import Handle

_REFUSED: Final = REFUSALS[CLUSTER]


def authorized(handle: Handle, key: ApiKey, access: ApiAccess, authorizer: Authorizer | None) -> Handle:
    """The handler of an API with its authorization; `handle` itself if the node has no authorizer."""
    if authorizer is None:
        return handle
    grants = grants_of(authorizer)
    if access.cluster_operation is not None:
        return _needs_cluster(handle, access, authorizer, grants)
    if access.guard:
        guarded = _guarded(handle, key, access, authorizer, grants)
        if grants is None or not access.granted:
            return guarded
        granted: Handle = _function(access.granted, key)(handle, guarded, grants)
        return granted
    return handle


def undecoded_right(access: ApiAccess) -> AclOperation | None:
    """The operation on the cluster without which a request is refused before it is decoded; None if the authorization
    depends on the request."""
    return None if access.refuse else access.cluster_operation


def refuse_undecoded(operation: AclOperation, authorizer: Authorizer, ctx: RequestContext) -> Message | None:
    """The response to a request without the right `operation` on the cluster; None if the client has the right. Raises
    KafkaError if the authorizer is not ready."""
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

    async def handle_authorized(port: Any, ctx: RequestContext, request: Any) -> Message | None:
        if ClientRights(authorizer, grants, ctx).allows(operation, CLUSTER):
            return await handle(port, ctx, request)
        return _refusal(ctx.api_key) if refuse is None else refuse(request, ctx.api_version, _REFUSED)

    return handle_authorized


def _guarded(handle: Handle, key: ApiKey, access: ApiAccess, authorizer: Authorizer, grants: Grants | None) -> Handle:
    guard = _function(access.guard, key)
    wants_context = len(signature(guard).parameters) > 3

    def handle_authorized(port: Any, ctx: RequestContext, request: Any) -> Coroutine[Any, Any, Message | None]:
        auth = ClientRights(authorizer, grants, ctx)
        outcome = guard(port, auth, request, ctx) if wants_context else guard(port, auth, request)
        if outcome is None:  # no coroutine around that of the handler: most requests are allowed
            return handle(port, ctx, request)
        return carry_out(outcome, port, ctx, request)

    async def carry_out(outcome: Outcome, port: Any, ctx: RequestContext, request: Any) -> Message | None:
        if isinstance(outcome, Later):
            ctx.runs_alone = True  # the wait for the checks must not change the order of the connection's requests
            outcome = await outcome.decided
            ctx.has_many_entries = True
            if outcome is None:
                return await handle(port, ctx, request)
        if isinstance(outcome, Message):
            return outcome
        assert isinstance(outcome, Narrowed), "a guard decides before a handler runs"
        response = await handle(port, ctx, request)
        completed = outcome.complete(response)
        answer: Message | None = await completed if outcome.is_slow else completed
        return answer

    return handle_authorized


def _function(name: str, key: ApiKey | None = None) -> Callable[..., Any]:
    """The function `module.function` of the guards; without a function, that of the API's name."""
    module, _, function = name.partition(".")
    if not function:
        assert key is not None
        function = key.name.lower()
    found: Callable[..., Any] = getattr(
        import_module(f"barnabas.server.broker.authorization.guards.{module}"), function
    )
    return found
