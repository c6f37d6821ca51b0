"""Shell: dispatches a request: finds its route, decodes it, calls the handler, encodes the response, updates metrics.

Authorization (`broker/authorization/`) is here, too: `_LoadedApi` wraps the handler with the checks of its row. A
request that needs a right on the cluster as a whole is checked before it is decoded. Without an authorizer nothing is
checked.

After the handler, the request is accounted for if there are quotas (`client_quotas.py`).

Clients authenticate before their requests get here, in `protocol/transport/secure_connection.py`; `Peer.principal` is
the identity of the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from barnabas.core.buffers import Buffer
from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.core.telemetry.loop_watch import LoopHold, LoopWatch, RequestStep, in_steps
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.transport.ports import Answer, CloseConnectionError, Finished, Peer, RequestScheduling
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.codec import decode_prefix
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.schema import Message
from barnabas.protocol.wire.server_conn import ReceivedRequest
from barnabas.server.broker.apis import API_ROWS, Served
from barnabas.server.broker.authorization.enforcement import authorized, refuse_undecoded, undecoded_right
from barnabas.server.broker.client_quotas import ClientQuotas
from barnabas.server.broker.error_responses import error_response
from barnabas.server.broker.request_context import RequestContext
from barnabas.server.broker.request_metrics import RequestMeter, meter_of
from barnabas.server.broker.served import ServedApis, load_handler

log = get_logger("barnabas.server.broker")

PLAIN_REQUEST_BYTES_MAX = 2 * 1024 * 1024
"""The largest request of an API that carries only names and numbers; 2 MiB hold some 30,000 partitions. Decoding turns
such a request into objects of many times its size without yielding to the event loop. Requests that carry
data of the user (`Api.carries_data`) are bounded by socket.request.max.bytes only.
"""
_LONG_TO_DECODE_BYTES = 128 * 1024
"""A larger request of names and numbers is decoded in a slice of long work, which takes 5 ms and more."""
_LARGE_REQUEST_BYTES = 32 * 1024
_LARGE_RESPONSE_ENTRIES = 500
"""A response with a list of this many entries, or to a request of `_LARGE_REQUEST_BYTES`, is encoded in a thread. The
event loop gets the interpreter at least every millisecond (`sys.setswitchinterval`) while the thread works."""
_SLICE_ENTRIES = 20_000
"""If the handler has counted the entries of a large response, and has found at most so many, the response is encoded on
the event loop, as a slice of long work (about 10 ms): while a thread works, each callback of the loop waits for the
interpreter."""


class _LoadedApi:
    """An API with its imported handler, its port and its metrics."""

    __slots__ = (
        "carries_data",
        "handle",
        "hold",
        "large_fields",
        "max_version",
        "meter",
        "min_version",
        "port",
        "request",
        "undecoded_right",
    )

    def __init__(self, key: ApiKey, served: Served, listener: ServedApis, metrics: Metrics, watch: LoopWatch) -> None:
        row, access, authorizer = API_ROWS[key], served.access, listener.authorizer
        self.undecoded_right = None if authorizer is None else undecoded_right(access)
        """The right that is checked before decoding; None if `handle` checks all rights."""
        handle = load_handler(served.folder, key)
        self.handle = handle if self.undecoded_right is not None else authorized(handle, key, access, authorizer)
        self.port = listener.ports[served.folder]
        self.request = APIS[key].request
        self.carries_data = row.carries_data
        self.min_version = served.min_version
        self.max_version = served.max_version
        self.meter: RequestMeter = meter_of(key, metrics, watch)
        self.hold: LoopHold = self.meter.hold
        fields = () if row.is_encoded_at_once else APIS[key].response.__schema__.fields
        self.large_fields = tuple(field.name for field in fields if field.kind == "array")
        """The fields of the response that may be long lists."""


class Dispatcher:
    """Serves the requests of all connections of a listener. Implements the protocol `RequestHandler`.

    `begin` runs up to the first await of the API's handler, without a task. `loop_time` is the event loop's clock,
    which stands still while a step runs on uvloop; the clock of `watch` does not.
    """

    def __init__(
        self,
        served: ServedApis,
        metrics: Metrics,
        loop_time: Callable[[], float],
        watch: LoopWatch,
        codecs: Executor,
        quotas: ClientQuotas | None = None,
    ) -> None:
        """`quotas` are those of a broker; controllers have none here."""
        self._served = served
        self._metrics = metrics
        self._loop_time = loop_time
        self._watch = watch
        self._clock = watch.clock
        self._codecs = codecs
        self._quotas = quotas
        self._loaded: dict[int, _LoadedApi] = {}
        self._newest: RequestContext | None = None
        """The context of the request whose handler was started last."""

    def scheduling(self, request: ReceivedRequest) -> RequestScheduling:
        """How the connection continues after `request`, whose handler has just suspended for the first time."""
        served = self._served.apis.by_key.get(request.header.api_key)
        if len(request.frame) > _LONG_TO_DECODE_BYTES and not API_ROWS[ApiKey(request.header.api_key)].carries_data:
            return RequestScheduling.SEQUENTIAL  # it is not decoded yet, and has not fixed its place in the order
        alone = served is None or (self._newest is not None and self._newest.runs_alone)
        return RequestScheduling.SEQUENTIAL if served is None or alone else served.scheduling

    def on_closed(self, peer: Peer) -> None:
        self._served.on_disconnect(peer.connection_id)

    def warm_up(self, *keys: ApiKey) -> None:
        """Import the handlers of these APIs now, so that their first request does not wait for the import."""
        for key in keys:
            self._load(key)

    def begin(
        self, request: ReceivedRequest, peer: Peer, *, in_slice: bool = False
    ) -> Finished[Answer] | Coroutine[Any, Any, Answer]:
        """Handle the request up to the handler's first suspension. Returns the buffers of the response frame, in order,
        or None for no response; or a coroutine that runs the rest. Raises CloseConnectionError if the request cannot be
        answered. `in_slice` says that this is a slice of long work."""
        header = request.header
        key, version = header.api_key, header.api_version
        loaded = self._loaded.get(key) or self._load(key)
        if not loaded.min_version <= version <= loaded.max_version:
            return Finished(self._reject_version(request, loaded))
        if len(request.frame) > _LONG_TO_DECODE_BYTES and not in_slice and not loaded.carries_data:
            if len(request.frame) > PLAIN_REQUEST_BYTES_MAX:
                raise CloseConnectionError(
                    f"The {_name(key)} request has {len(request.frame)} bytes; at most {PLAIN_REQUEST_BYTES_MAX} are "
                    "accepted. Send fewer topics or partitions in one request."
                )
            return self._begin_later(request, peer)
        clock, hold = self._clock, loaded.hold
        began = clock()
        if loaded.undecoded_right is not None:
            refusal = self._refusal(request, peer, loaded.undecoded_right)
            if refusal is not None:
                _count(request, loaded, began, began, clock(), refusal)
                return Finished(request.answer(refusal))
        try:
            message = decode_prefix(loaded.request, version, request.frame, request.body_offset)[0]
        except WireError as error:
            hold.add(clock() - began)
            raise CloseConnectionError(f"{APIS[ApiKey(key)].name} v{version} cannot be decoded: {error}") from error
        ctx = self._newest = self._context(request, peer)
        try:
            coroutine = loaded.handle(loaded.port, ctx, message)
            awaited = coroutine.send(None)
        except StopIteration as stop:
            response = stop.value
        except CloseConnectionError:
            hold.add(clock() - began)
            raise
        except Exception as error:  # noqa: BLE001 - a bug in one handler must not end the connection of other requests
            response = error_response(ctx, error)
        else:
            ctx.held_s = ctx.first_step_s = clock() - began
            hold.add(ctx.held_s)
            return self._finish(request, ctx, message, loaded, RequestStep(began), coroutine, awaited)
        if self._quotas is not None and self._quotas.is_active:
            ctx.held_s = clock() - began
            response = self._quotas.apply(ctx, message, len(request.frame), response, _size_in(request))
        if response is not None and loaded.large_fields and _is_large(request, response, loaded, ctx):
            return self._answer_later(request, loaded, RequestStep(began), response, ctx.entries)
        answer = None if response is None else request.answer(response)
        _count(request, loaded, began, began, clock(), response, ctx)
        return Finished(answer)

    async def _begin_later(self, request: ReceivedRequest, peer: Peer) -> Answer:
        """Handle a request that takes long to decode, in slices of long work."""
        await asyncio.sleep(0)
        outcome = self.begin(request, peer, in_slice=True)
        return outcome.value if isinstance(outcome, Finished) else await outcome

    def _context(self, request: ReceivedRequest, peer: Peer) -> RequestContext:
        header, now_ms = request.header, self._served.clock.now_ms()
        return RequestContext(
            header.api_key, header.api_version, header.correlation_id, header.client_id, peer, now_ms, self._loop_time()
        )

    def _refusal(self, request: ReceivedRequest, peer: Peer, right: AclOperation) -> Message | None:
        """The response to a request of a client without `right` on the cluster; None if the client has the right."""
        ctx = self._newest = self._context(request, peer)
        try:
            authorizer = self._served.authorizer
            assert authorizer is not None, "only with an authorizer a right is needed"
            return refuse_undecoded(right, authorizer, ctx)
        except KafkaError as error:
            return error_response(ctx, error)

    async def _finish(
        self,
        request: ReceivedRequest,
        ctx: RequestContext,
        message: Message,
        loaded: _LoadedApi,
        step: RequestStep,
        coroutine: Coroutine[Any, Any, Message | None],
        awaited: Any,
    ) -> Answer:
        """Run the rest of a handler that has suspended to wait for `awaited`. Its first step, which is over, began at
        `step.began`."""
        began, clock, quotas = step.began, self._clock, self._quotas
        try:
            response = await in_steps(coroutine, awaited, _RequestTime(ctx, loaded.hold), clock, step)
        except CloseConnectionError:
            loaded.hold.add(clock() - step.began)
            raise
        except Exception as error:  # noqa: BLE001 - a bug in one handler must not end the connection of other requests
            response = error_response(ctx, error)
        last_s = clock() - step.began
        ctx.held_s += last_s
        ctx.client.usage.seconds += last_s
        if quotas is not None and quotas.is_active:
            response = quotas.apply(ctx, message, len(request.frame), response, _size_in(request))
        if response is not None and (
            ctx.has_many_entries or (loaded.large_fields and _is_large(request, response, loaded, ctx))
        ):
            return await self._answer_later(request, loaded, step, response, ctx.entries, began)
        answer = None if response is None else request.answer(response)
        _count(request, loaded, began, step.began, clock(), response, ctx)
        return answer

    async def _answer_later(
        self,
        request: ReceivedRequest,
        loaded: _LoadedApi,
        step: RequestStep,
        response: Message,
        entries: int,
        began: float | None = None,
    ) -> Answer:
        """Encode a large response in a slice of its own, or off the event loop. The request's handling began at
        `began`, by default with the current step."""
        began = step.began if began is None else began
        encoding_began = self._clock()
        loaded.hold.add(encoding_began - step.began)
        if 0 < entries <= _SLICE_ENTRIES:
            await asyncio.sleep(0)
            slice_began = self._clock()
            answer: Answer = request.answer(response)
            loaded.hold.add(self._clock() - slice_began)
        else:
            answer = await asyncio.get_running_loop().run_in_executor(self._codecs, request.answer, response)
        now = self._clock()
        loaded.meter.encoding.observe((now - encoding_began) * 1000)
        _count(request, loaded, began, now, now, response)
        return answer

    def _load(self, key: int) -> _LoadedApi:
        served = self._served.apis.by_key.get(key)
        if served is None:
            # Kafka closes the connection too (InvalidRequestException in RequestHeader.parse).
            raise CloseConnectionError(f"API {_name(key)} is not served on this listener.")
        loaded = self._loaded[key] = _LoadedApi(ApiKey(key), served, self._served, self._metrics, self._watch)
        return loaded

    def _reject_version(self, request: ReceivedRequest, loaded: _LoadedApi) -> list[Buffer]:
        """Respond to ApiVersions in version 0 (KIP-511); raise CloseConnectionError for any other API."""
        if request.header.api_key != ApiKey.API_VERSIONS:
            raise CloseConnectionError(
                f"{_name(request.header.api_key)} v{request.header.api_version} is not served; versions "
                f"{loaded.min_version} to {loaded.max_version} are."
            )
        from barnabas.server.broker.handlers.admin.api_versions import unsupported_version

        return request.answer(unsupported_version(self._served.apis), version=0)


class _RequestTime:
    """Adds the steps of a request to its context too."""

    __slots__ = ("_ctx", "_hold")

    def __init__(self, ctx: RequestContext, hold: LoopHold) -> None:
        self._ctx = ctx
        self._hold = hold

    def add(self, seconds: float) -> None:
        self._ctx.held_s += seconds
        self._ctx.client.usage.seconds += seconds
        self._hold.add(seconds)


def _size_in(request: ReceivedRequest) -> Callable[[Message], int]:
    """A function that returns the size of a response to the request."""
    return lambda response: sum(map(len, request.answer(response)))


def _count(
    request: ReceivedRequest,
    loaded: _LoadedApi,
    began: float,
    step_began: float,
    ended: float,
    response: Any = None,
    ctx: RequestContext | None = None,
) -> None:
    """Add an answered request to the metrics. Its last step began at `step_began`, its first one at `began`."""
    meter = loaded.meter
    total_ms = (ended - began) * 1000
    meter.requests.value += 1
    meter.bytes.value += len(request.frame)
    meter.by_version[request.header.api_version] += 1
    meter.total.observe(total_ms)
    loaded.hold.add(ended - step_began)
    if response is not None:
        if meter.has_error_code and response.error_code:
            meter.count_error(response.error_code)
        elif meter.error_lists:
            meter.count_errors_in(response)
    if ctx is None:
        return
    if step_began != began:
        meter.remote.observe((step_began - began - ctx.first_step_s) * 1000)
    if ctx.errors is not None:
        for code in ctx.errors:
            meter.count_error(code)
    if ctx.is_exempt and meter.from_followers is not None:
        meter.from_followers.observe(total_ms)
    if ctx.throttle_ms:
        meter.throttle.observe(ctx.throttle_ms)


def _is_large(request: ReceivedRequest, response: Message, loaded: _LoadedApi, ctx: RequestContext) -> bool:
    """Whether encoding the response may take milliseconds."""
    if len(request.frame) >= _LARGE_REQUEST_BYTES or ctx.entries >= _LARGE_RESPONSE_ENTRIES:
        return True
    for name in loaded.large_fields:
        entries = getattr(response, name)
        if entries is not None and len(entries) >= _LARGE_RESPONSE_ENTRIES:
            return True
    return False


def _name(key: int) -> str:
    try:
        return APIS[ApiKey(key)].name
    except (ValueError, KeyError):
        return str(key)
