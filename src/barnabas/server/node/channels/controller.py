"""Shell: the way to the active controller, wherever it is now: fills `broker.ControllerChannel`.

    call ──► who leads the quorum? ── nobody known ──► pause, look again
              │            └ this node: its own controller
              └ another: what the broker itself asks (registration, heartbeat, AlterPartition) goes as it is,
                         what a client asked goes in an Envelope, with the client's name and address (KIP-590)

NOT_CONTROLLER is always asked again elsewhere: whoever gives that answer did nothing. A request that was sent and not
answered may have been carried out; it is sent again only if carrying it out twice is carrying it out once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from barnabas.core.errors import ErrorCode, KafkaError, error_code
from barnabas.core.rng import Rng
from barnabas.core.tasks import enter_task
from barnabas.protocol.transport.node_client import NodeClient, UnansweredError
from barnabas.protocol.wire.apis import API_KEYS, APIS, ApiKey, request_header_version, response_header_version
from barnabas.protocol.wire.codec import decode, decode_prefix, encode
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.headers import RequestHeader, ResponseHeader
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.wire.schema import Message, Request, Response, schema_of
from barnabas.server.broker.controller_services import ControllerServices
from barnabas.server.broker.forwarded import answer_forwarded
from barnabas.server.broker.handlers.controller.envelope import write_principal
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.publish import Publisher

_BACKOFF_MIN_S: Final = 0.02
_BACKOFF_MAX_S: Final = 1.0
_IMAGE_WAIT_S: Final = 2.0
"""How long a new topic may take to appear in this node's image before the client is answered all the same."""
_TIMEOUT_MS_MIN: Final = 1_000
_LOOK_S: Final = 0.5
"""How often whoever waits for an answer looks whether the controller has moved meanwhile."""

_REPEATABLE: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,  # the incarnation id says that it is the same process
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.ALLOCATE_PRODUCER_IDS,  # a block is lost, which blocks are made for
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_QUORUM,
    }
)
_PURPOSES: Final = {ApiKey.BROKER_HEARTBEAT: "heartbeat", ApiKey.BROKER_REGISTRATION: "heartbeat"}
"""Heartbeats wait behind nothing; everything else that goes to the controller shares a connection."""


class Leadership(Protocol):
    """Who leads the metadata log, as far as this node knows (`broker.forward.QuorumStatus` says more)."""

    @property
    def leader_id(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    def leader_endpoint(self) -> tuple[str, int] | None: ...


class ActiveController:
    """`local` is this node's own controller, if it has one."""

    def __init__(
        self,
        quorum: Leadership,
        outgoing: NodeClient,
        publisher: Publisher,
        *,
        node_id: int,
        rng: Rng,
        local: ControllerServices | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        self._quorum = quorum
        self._outgoing = outgoing
        self._publisher = publisher
        self._node_id = node_id
        self._rng = rng
        self._local = local
        self._timeout_ms = timeout_ms
        self._awaited: list[tuple[Callable[[ClusterImage], bool], asyncio.Future[None]]] = []
        publisher.subscribe(self, at_once=False)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        for holds, waiter in self._awaited:
            if not waiter.done() and holds(image):
                waiter.set_result(None)

    async def call(self, request: Message, version: int, ctx: RequestContext | None = None) -> Message:
        """The active controller's answer. With `ctx`, the request is a client's.

        Raises KafkaError: REQUEST_TIMED_OUT when no controller was found, or none answered, in time; what the
        controller refused the request as a whole with; an UnansweredError when it may have been carried out.
        """
        asked_ms = getattr(request, "timeout_ms", self._timeout_ms)
        deadline = asyncio.get_running_loop().time() + min(self._timeout_ms, max(asked_ms, _TIMEOUT_MS_MIN)) / 1000
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
                        if not _may_repeat(request, error):
                            raise _told(error, ctx) from error
                        reason = str(error)
                    await asyncio.sleep(pause * (0.5 + self._rng.random() / 2))
                    pause = min(pause * 2, _BACKOFF_MAX_S)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"The active controller did not answer in time: {reason}."
            ) from None
        if isinstance(response, CreateTopicsResponse):
            await self._wait_for_topics(cast("CreateTopicsRequest", request), response)
        return response

    async def _try(self, request: Message, version: int, ctx: RequestContext | None, deadline: float) -> Message:
        """Once. Raises KafkaError; NOT_CONTROLLER also where nobody leads."""
        if self._quorum.leader_id == self._node_id and self._local is not None:
            if ctx is None:
                return await self._local.controller.call(request, version)
            return await answer_forwarded(self._local, _for(request, version, ctx), request)
        place = self._quorum.leader_endpoint()
        if place is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known")
        key = API_KEYS[schema_of(request).key]
        if ctx is None:
            response: Message = await self._ask(
                place, cast("Request", request), deadline, purpose=_PURPOSES.get(key, "controller"), version_max=version
            )
            if getattr(response, "error_code", 0) == ErrorCode.NOT_CONTROLLER:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            return response
        inner = _for(request, version, ctx)
        answer = await self._ask(place, wrap(request, inner), deadline, purpose="controller")
        return unwrap(cast("EnvelopeResponse", answer), key, inner)

    async def _ask(
        self, place: tuple[str, int], request: Request, deadline: float, *, purpose: str, version_max: int | None = None
    ) -> Response:
        """Until it is answered, or somebody else is the controller: one that is cut off never answers."""
        epoch = self._quorum.leader_epoch
        left_ms = max(int((deadline - asyncio.get_running_loop().time()) * 1000), 1)
        asking = asyncio.ensure_future(
            self._outgoing.send(*place, request, timeout_ms=left_ms, purpose=purpose, version_max=version_max)
        )
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=_LOOK_S)
                if not asking.done() and self._quorum.leader_epoch != epoch:
                    raise UnansweredError(ErrorCode.BROKER_NOT_AVAILABLE, "the controller has moved meanwhile")
            return asking.result()
        finally:
            asking.cancel()

    # ---- this node's image

    async def _wait_for_topics(self, request: CreateTopicsRequest, response: CreateTopicsResponse) -> None:
        """What the client does next, it does with this node: answer when the node knows the topics."""
        if request.validate_only:
            return
        names = [topic.name for topic in response.topics if topic.error_code == ErrorCode.NONE]

        def known(image: ClusterImage) -> bool:
            return all(name in image.topics for name in names)

        if known(self._publisher.image):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (known, waiter)
        self._awaited.append(entry)
        try:
            async with asyncio.timeout(_IMAGE_WAIT_S):
                await waiter
        except TimeoutError:
            pass  # it is created; the client finds it where the image is newer, or here a little later
        finally:
            self._awaited.remove(entry)


def _may_repeat(request: Message, error: KafkaError) -> bool:
    if isinstance(error, UnansweredError):
        return ApiKey(schema_of(request).key) in _REPEATABLE
    return error.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


def _told(error: KafkaError, ctx: RequestContext | None) -> KafkaError:
    """To clients, a time-out is the error after which a change may have been made."""
    if ctx is None or not isinstance(error, UnansweredError):
        return error
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"The controller was lost before it answered; the change may have been made: {error}",
    )


def _for(request: Message, version: int, ctx: RequestContext) -> RequestContext:
    """A broker may ask for something else than its client did: topics are created because somebody wanted metadata."""
    key = schema_of(request).key
    return RequestContext(key, version, ctx.correlation_id, ctx.client_id, ctx.client, ctx.now_ms, ctx.received)


def wrap(request: Message, ctx: RequestContext) -> EnvelopeRequest:
    """The client's request as it would have come from the client."""
    key = ApiKey(ctx.api_key)
    header = RequestHeader(
        api_key=ctx.api_key,
        api_version=ctx.api_version,
        correlation_id=ctx.correlation_id,
        client_id=ctx.client_id,
    )
    head = encode(header, request_header_version(key, ctx.api_version))
    import ipaddress  # here: only a node that forwards needs it

    try:
        address = ipaddress.ip_address(ctx.client.host).packed
    except ValueError:
        address = bytes(4)  # it has a name only
    return EnvelopeRequest(
        request_data=head + encode(request, ctx.api_version),
        request_principal=write_principal(ctx.client.principal),
        client_host_address=address,
    )


def unwrap(envelope: EnvelopeResponse, key: ApiKey, ctx: RequestContext) -> Message:
    """The controller's answer to the client. Raises KafkaError with what the envelope says."""
    if envelope.error_code:
        raise KafkaError(error_code(envelope.error_code))
    data = bytes(envelope.response_data or b"")
    try:
        _, body = decode_prefix(ResponseHeader, response_header_version(key, ctx.api_version), data)
        return decode(APIS[key].response, ctx.api_version, data, body)
    except WireError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The controller's answer to {APIS[key].name} cannot be read: {error}"
        ) from error
