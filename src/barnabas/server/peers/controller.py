"""Shell: sends requests to the active controller; implements `ControllerChannel` of the broker package.

    call ──► leader of the quorum? ── unknown ──► pause, then retry
              │            └ this node: a method call to its own controller
              └ another node: a request of this broker (registration, heartbeat, AlterPartition) is sent unchanged;
                              a client's request is sent in an Envelope with the client's principal (KIP-590)

A request that was answered with NOT_CONTROLLER is always retried, because that controller did not handle the request.
A request without a response may have been handled; it is retried only if it is idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, cast

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng
from barnabas.core.tasks import enter_task
from barnabas.protocol.transport.node_client import NodeClient, UnansweredError
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey, request_header_version, response_header_version
from barnabas.protocol.wire.codec import decode, decode_prefix, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.headers import RequestHeader, ResponseHeader
from barnabas.protocol.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.wire.schema import Message, Request, schema_of
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.forwarded import ForwardedRequests
from barnabas.server.broker.handlers.controller.envelope import write_principal
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.publish import Publisher

_BACKOFF_MIN_S: Final = 0.02
_BACKOFF_MAX_S: Final = 1.0
_IMAGE_WAIT_S: Final = 2.0
"""The longest wait for a new topic or token to appear in this node's image before the response is sent to the
client."""
_TIMEOUT_MS_MIN: Final = 1_000
_CHECK_INTERVAL_S: Final = 0.5
"""The interval at which a pending request checks whether the active controller has changed."""

_IDEMPOTENT: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,  # the incarnation id identifies the process
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,  # a repetition wastes one block of producer ids, which is harmless
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_QUORUM,
    }
)
Address = tuple[str, int]
_PURPOSE: Final = "controller"
HEARTBEAT: Final = "heartbeat"
_PURPOSES: Final = {ApiKey.BROKER_HEARTBEAT: HEARTBEAT, ApiKey.BROKER_REGISTRATION: HEARTBEAT}
"""Heartbeats and registrations share a connection, so that no other request delays heartbeats. All other requests to
the controller share a second connection."""


class Leadership(Protocol):
    """The leader of the metadata log as known to this node. `QuorumStatus` of the broker package extends this."""

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def leader_endpoint(self) -> tuple[str, int] | None: ...


class ActiveController:
    """The channel to the active controller. `local` is this node's own controller, and `forwarded` serves the requests
    of clients there; both are None if this node has no controller. `images_applied` returns when this node's broker,
    if it has one, has applied all images."""

    def __init__(
        self,
        quorum: Leadership,
        outgoing: NodeClient,
        publisher: Publisher,
        *,
        node_id: int,
        rng: Rng,
        images_applied: Callable[[], Awaitable[None]],
        local: ControllerChannel | None = None,
        forwarded: ForwardedRequests | None = None,
        timeout_ms: int = 30_000,
        heartbeat_timeout_ms: int = 4_500,
    ) -> None:
        """`heartbeat_timeout_ms` limits heartbeats and registrations: half of broker.session.timeout.ms, as in Kafka.
        A request without a response by then closes its connection, so that the next one opens another. The old one
        may be dead in one direction only, or may wait for a retransmission long after the network works again."""
        self._quorum = quorum
        self._outgoing = outgoing
        self._publisher = publisher
        self._node_id = node_id
        self._rng = rng
        self._local = local
        self._forwarded = forwarded
        self._timeout_ms = timeout_ms
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._images_applied = images_applied
        self._image_waiters: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []
        publisher.subscribe(self, at_once=False)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        for holds, waiter in self._image_waiters:
            if not waiter.done() and holds(image):
                waiter.set_result(None)

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        """Send `request` to the active controller and return the response. `ctx` is set for a client's request.

        Raises KafkaError: REQUEST_TIMED_OUT if no controller was found or none answered in time; the error with which
        the controller rejected the whole request; an UnansweredError if the request may have been handled.
        """
        if ApiKey(schema_of(request).key) in _PURPOSES:
            limit_ms = self._heartbeat_timeout_ms
        else:
            limit_ms = min(self._timeout_ms, max(getattr(request, "timeout_ms", self._timeout_ms), _TIMEOUT_MS_MIN))
        deadline = asyncio.get_running_loop().time() + limit_ms / 1000
        pause = _BACKOFF_MIN_S
        reason = "no controller is known"
        await enter_task()
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    try:
                        response = await self._try(request, version, ctx, deadline)
                        break
                    except KafkaError as error:
                        if not _is_retriable(request, error):
                            raise _error_for_client(error, ctx) from error
                        reason = str(error)
                    await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))
                    pause = min(pause * 2, _BACKOFF_MAX_S)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"No response from the active controller in time: {reason}."
            ) from None
        if isinstance(response, CreateTopicsResponse):
            await self._wait_for_topics(cast("CreateTopicsRequest", request), response)
            await self._images_applied()
        elif isinstance(response, CreateDelegationTokenResponse) and not response.error_code:
            token_id = response.token_id
            await self._wait_for_image(lambda image: token_id in image.tokens.by_id)
        return response

    async def _try(self, request: Message, version: int, ctx: RequestContext | None, deadline: float) -> Message:
        """Try once. Raises KafkaError, with NOT_CONTROLLER also if the leader is unknown."""
        if self._quorum.leader_id == self._node_id and self._local is not None:
            if ctx is None:
                return await self._local.call(request, version)
            assert self._forwarded is not None, "a node with a controller serves forwarded requests itself"
            return await self._forwarded.answer(_context_for(request, version, ctx), request)
        place = self._quorum.leader_endpoint()
        if place is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        key = API_KEYS[schema_of(request).key]
        if ctx is not None:
            return await self._while_it_leads(self._forward(place, key, request, version, ctx, deadline))
        response = await self._while_it_leads(
            self._outgoing.send(
                *place,
                cast("Request", request),
                timeout_ms=_left_ms(deadline),
                purpose=_PURPOSES.get(key, _PURPOSE),
                version_max=version,
            )
        )
        if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return response

    async def _forward(
        self, place: Address, key: ApiKey, request: Message, version: int, ctx: RequestContext, deadline: float
    ) -> Message:
        """Send a client's request in an Envelope. A controller of an older Apache Kafka may know fewer versions of the
        API than this broker has advertised to the client."""
        version = await self._outgoing.version_of(
            *place, key, timeout_ms=_left_ms(deadline), purpose=_PURPOSE, version_max=version
        )
        inner = _context_for(request, version, ctx)
        answer = await self._outgoing.send(
            *place, wrap(request, inner), timeout_ms=_left_ms(deadline), purpose=_PURPOSE
        )
        return unwrap(cast("EnvelopeResponse", answer), key, inner)

    async def _while_it_leads(self, exchange: Coroutine[Any, Any, Message]) -> Message:
        """Wait for the response of the active controller, or until another node becomes the active controller.

        The previous controller may be cut off from this node, and then would never answer.
        """
        epoch = self._quorum.leader_epoch
        pending = asyncio.ensure_future(exchange)
        try:
            while not pending.done():
                await asyncio.wait((pending,), timeout=_CHECK_INTERVAL_S)
                if not pending.done() and self._quorum.leader_epoch != epoch:
                    raise UnansweredError(ErrorCode.BROKER_NOT_AVAILABLE, "another node became the active controller")
            return pending.result()
        finally:
            pending.cancel()

    # ---- this node's image

    async def _wait_for_topics(self, request: CreateTopicsRequest, response: CreateTopicsResponse) -> None:
        """Wait until this node's image has the new topics, because the client's next requests go to this node."""
        if request.validate_only:
            return
        names = [topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE]

        def known(image: ClusterImage) -> bool:
            return all(name in image.topics for name in names)

        await self._wait_for_image(known)

    async def _wait_for_image(self, holds: Callable[[ClusterImage], bool]) -> None:
        """Wait until `holds` of this node's image, but not for long: the change is committed."""
        if holds(self._publisher.image):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (holds, waiter)
        self._image_waiters.append(entry)
        try:
            async with asyncio.timeout(_IMAGE_WAIT_S):
                await waiter
        except TimeoutError:
            pass  # the change is made; this node's image will have it soon
        finally:
            self._image_waiters.remove(entry)


def _left_ms(deadline: float) -> int:
    """The milliseconds until `deadline`, a time of the event loop; at least one."""
    return max(int((deadline - asyncio.get_running_loop().time()) * 1000), 1)


def _is_retriable(request: Message, error: KafkaError) -> bool:
    if isinstance(error, UnansweredError):
        return ApiKey(schema_of(request).key) in _IDEMPOTENT
    return error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


def _error_for_client(error: KafkaError, ctx: RequestContext | None) -> KafkaError:
    """For a client, replace UnansweredError by REQUEST_TIMED_OUT: the change may have been made."""
    if ctx is None or not isinstance(error, UnansweredError):
        return error
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"The connection to the controller was lost before its response; the change may have been made: {error}",
    )


def _context_for(request: Message, version: int, ctx: RequestContext) -> RequestContext:
    """`ctx` for `request`, which can differ from the client's: a Metadata request can cause a CreateTopics request."""
    key = schema_of(request).key
    return RequestContext(key, version, ctx.correlation_id, ctx.client_id, ctx.client, ctx.now_ms, ctx.received)


def wrap(request: Message, ctx: RequestContext) -> EnvelopeRequest:
    """Put the client's request into an Envelope, encoded in the version of `ctx`. Raises KafkaError UNSUPPORTED_VERSION
    if that version lacks a field that is set."""
    key = ApiKey(ctx.api_key)
    header = RequestHeader(
        api_key=ctx.api_key,
        api_version=ctx.api_version,
        correlation_id=ctx.correlation_id,
        client_id=ctx.client_id,
    )
    head = encode(header, request_header_version(key, ctx.api_version))
    import ipaddress  # imported here because only forwarding needs it

    try:
        address = ipaddress.ip_address(ctx.client.host).packed
    except ValueError:
        address = bytes(4)  # the host is a name, not an address
    try:
        body = encode(request, ctx.api_version)
    except WireError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The active controller is older: {error}") from error
    return EnvelopeRequest(
        request_data=head + body,
        request_principal=write_principal(ctx.client.principal, token_authenticated=ctx.client.token_authenticated),
        client_host_address=address,
    )


def unwrap(envelope: EnvelopeResponse, key: ApiKey, ctx: RequestContext) -> Message:
    """Return the controller's response in `envelope`. Raises KafkaError for an error code of the envelope."""
    if envelope.error_code:
        raise KafkaError(error_code(envelope.error_code))
    data = bytes(envelope.response_data or b"")
    try:
        _, body = decode_prefix(ResponseHeader, response_header_version(key, ctx.api_version), data)
        return decode(APIS[key].response, ctx.api_version, data, body)
    except WireError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's response to {APIS[key].name} cannot be decoded: {error}"
        ) from error
