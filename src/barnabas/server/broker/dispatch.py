"""Shell: from a request to its answer: find the route, decode, call the handler, encode, count.

Every request passes here; authentication, authorization and quotas have their place between decoding and the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

from barnabas.core.buffers import Buffer
from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import Counter, Histogram, Metrics, get_logger
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.schema import Message
from barnabas.protocol.wire.server_conn import Request
from barnabas.server.broker.apis import ApiTable, Pace, Route
from barnabas.server.broker.request_context import Client, HangUpError, RequestContext

log = get_logger("barnabas.server.broker")

PLAIN_BYTES_MAX = 2 * 1024 * 1024
"""Largest request that carries nothing but names and numbers: 2 MiB are some 30,000 partitions. A list becomes objects
of many times its size, all in one go; requests that carry what users wrote may have socket.request.max.bytes.
"""
_CARRIERS = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_COMMIT,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)


class HasApis(Protocol):
    """What the dispatcher itself needs of the services of a broker or of a controller."""

    clock: Clock
    apis: ApiTable


ServicesT = TypeVar("ServicesT", bound=HasApis)
Handle = Callable[[Any, RequestContext, Any], Awaitable[Message | None]]


class _Loaded:
    """A route with its handler imported and its metrics at hand."""

    __slots__ = ("handle", "latency", "max_version", "min_version", "requests")

    def __init__(self, route: Route, metrics: Metrics) -> None:
        module = import_module(f"barnabas.server.broker.handlers.{route.handler}")
        self.handle: Handle = module.handle
        self.min_version = route.min_version
        self.max_version = route.max_version
        api = APIS[route.key].name
        self.requests: Counter = metrics.counter("barnabas_requests_total", "Requests answered.", api=api)
        self.latency: Histogram = metrics.histogram(
            "barnabas_request_latency_ms", "From the arrival of a request to its answer, waiting included.", api=api
        )


class Dispatcher(Generic[ServicesT]):
    """Answers requests of any connection, by the table of `services`. `answer` is synchronous up to the handler's own
    first await."""

    def __init__(self, services: ServicesT, metrics: Metrics, monotonic: Callable[[], float]) -> None:
        self._services = services
        self._metrics = metrics
        self._monotonic = monotonic
        self._loaded: dict[int, _Loaded] = {}

    def pace(self, api_key: int) -> Pace:
        route = self._services.apis.by_key.get(api_key)
        return Pace.IN_TURN if route is None else route.pace

    def warm_up(self, *keys: ApiKey) -> None:
        """Import handlers and compile nothing: the first request of these kinds is spared the import."""
        for key in keys:
            self._load(key)

    async def answer(self, request: Request, client: Client) -> list[Buffer] | None:
        """The response frame in pieces; None for no response. Raises HangUpError."""
        header = request.header
        key, version = header.api_key, header.api_version
        loaded = self._loaded.get(key) or self._load(key)
        if not loaded.min_version <= version <= loaded.max_version:
            return self._refuse_version(request, loaded)
        if len(request.frame) > PLAIN_BYTES_MAX and key not in _CARRIERS:
            raise HangUpError(f"{_name(key)} of {len(request.frame)} bytes: at most {PLAIN_BYTES_MAX} are read")
        try:
            message = request.decode()
        except WireError as error:
            raise HangUpError(f"unreadable {APIS[ApiKey(key)].name} v{version}: {error}") from error
        services = self._services
        received = self._monotonic()
        ctx = RequestContext(
            key, version, header.correlation_id, header.client_id, client, services.clock.now_ms(), received
        )
        try:
            response = await loaded.handle(services, ctx, message)
        except HangUpError:
            raise
        except Exception as error:  # noqa: BLE001 - the dispatcher is where a handler's bug must end
            response = _unexpected(ctx, error)
        loaded.requests.value += 1
        loaded.latency.observe((self._monotonic() - received) * 1000)
        return None if response is None else request.answer(response)

    def _load(self, key: int) -> _Loaded:
        route = self._services.apis.by_key.get(key)
        if route is None:
            # Kafka closes the connection too (InvalidRequestException out of RequestHeader.parse).
            raise HangUpError(f"API {_name(key)} is not served on this listener")
        loaded = self._loaded[key] = _Loaded(route, self._metrics)
        return loaded

    def _refuse_version(self, request: Request, loaded: _Loaded) -> list[Buffer]:
        if request.header.api_key != ApiKey.API_VERSIONS:
            raise HangUpError(
                f"{_name(request.header.api_key)} v{request.header.api_version} is not served "
                f"(versions {loaded.min_version} to {loaded.max_version} are)"
            )
        from barnabas.server.broker.handlers.cluster.api_versions import unsupported_version

        return request.answer(unsupported_version(self._services.apis), version=0)


def _unexpected(ctx: RequestContext, error: Exception) -> Message:
    """An error that no handler foresaw: one that stands at the top of the response where there is such a place."""
    api = APIS[ApiKey(ctx.api_key)]
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if not isinstance(error, KafkaError):
        log.exception("a handler failed", api=api.name, version=ctx.api_version, client=ctx.client_id)
    response: Any = api.response()  # which fields it has depends on the API
    if not hasattr(response, "error_code"):
        raise HangUpError(f"{api.name} v{ctx.api_version} failed: {error}") from error
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = str(error) if isinstance(error, KafkaError) else code.message
    answer: Message = response
    return answer


def _name(key: int) -> str:
    try:
        return APIS[ApiKey(key)].name
    except (ValueError, KeyError):
        return str(key)
