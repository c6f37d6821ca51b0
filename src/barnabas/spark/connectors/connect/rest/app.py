"""Shell: routes HTTP requests to handlers, and encodes their answers and errors as Connect does.

Any worker handles any request: before a request is handled, the worker reads the config and status topics to their
ends, and a change is written to the config topic, where the worker that runs the connector finds it. No request is
forwarded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from barnabas.client.single_writer.state import WritersCompeteError
from barnabas.core.errors import BarnabasError
from barnabas.protocol.transport.http.messages import HttpRequest, HttpResponse
from barnabas.protocol.transport.http.routes import NoRouteError, RouteTree, path_segments
from barnabas.spark.connectors.connect.cluster.values import ConnectRequestError
from barnabas.spark.connectors.connect.rest import plugins
from barnabas.spark.connectors.connect.rest.calls import Answer, ConnectCall, ConnectServices
from barnabas.spark.connectors.connect.rest.table import CONNECT_ROUTES, ConnectHandler

_STARTING = "Worker is still starting up."


class ConnectApp:
    """The `HttpHandler` of one worker. `services` returns None while the worker starts."""

    def __init__(self, services: Callable[[], ConnectServices | None]) -> None:
        self._services = services
        self._routes: RouteTree[ConnectHandler] = RouteTree(CONNECT_ROUTES)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        is_health = urlsplit(request.target).path.rstrip("/") == "/health"
        try:
            answer = await self._answer(request)
        except ConnectRequestError as error:
            return _health(error.status, error.message) if is_health else _error(error.status, error.message)
        except WritersCompeteError as error:
            return _error(409, str(error))
        except TimeoutError:
            message = "The topics of this Connect cluster did not answer in time."
            return _health(500, message) if is_health else _error(500, message)
        except BarnabasError as error:
            message = f"The topics of this Connect cluster cannot be used: {error}"
            return _health(500, message) if is_health else _error(500, message)
        if not isinstance(answer, Answer):
            return HttpResponse(200, _dump(answer))
        headers = {} if answer.location is None else {"Location": answer.location}
        body = b"" if answer.body is None else _dump(answer.body)
        return HttpResponse(answer.status, body, headers=headers)

    async def _answer(self, request: HttpRequest) -> Any:
        parts = urlsplit(request.target)
        try:
            handler, arguments = self._routes.find(request.method, path_segments(parts.path))
        except NoRouteError as error:
            raise ConnectRequestError(error.status, str(error)) from None
        services = self._services()
        if services is None:
            raise ConnectRequestError(503, _STARTING)
        query = parse_qs(parts.query, keep_blank_values=True)
        if handler is not plugins.about:
            await services.store.refresh()
        return await handler(ConnectCall(services, arguments, query, request.body))


def _error(status: int, message: str) -> HttpResponse:
    return HttpResponse(status, _dump({"error_code": status, "message": message}))


def _health(status: int, message: str) -> HttpResponse:
    return HttpResponse(status, _dump({"status": "starting" if status == 503 else "unhealthy", "message": message}))


def _dump(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")
