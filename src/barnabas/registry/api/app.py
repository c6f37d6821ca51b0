"""Shell: routes HTTP requests to handlers and encodes their results: paths, contexts, content types, error documents.

Before a request is handled, the registry reads the `_schemas` topic to its end, so that several registries on one topic
give the same answers. Only data that never changes (the schema of an id) is returned from memory without reading.
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.protocol.transport.http.messages import HttpRequest, HttpResponse
from barnabas.protocol.transport.http.routes import NoRouteError, RouteTree, path_segments
from barnabas.registry.api.calls import Call, Text
from barnabas.registry.api.table import CHANGING, LASTING, ROUTES, Handler
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.service import Registry
from barnabas.registry.subjects import DEFAULT_CONTEXT

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_CONTENT_TYPES: Final = (CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json")


class RegistryApp:
    """The `HttpHandler` of one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._routes: RouteTree[Handler] = RouteTree(ROUTES)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        content_type = _choose_content_type(request.headers.get("accept", ""))
        try:
            answer = await self._answer(request)
        except RegistryError as error:
            return _error(error.status, int(error.code), error.message, content_type)
        except UnicodeEncodeError:
            message = "The request has half of a surrogate pair (\\ud800 to \\udfff), which UTF-8 cannot encode."
            return _error(422, Code.UNPROCESSABLE, message, content_type)
        except TimeoutError:
            return _error(500, Code.OPERATION_TIMEOUT, "The schemas topic did not answer in time.", content_type)
        except BarnabasError as error:
            timed_out = isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT
            code = Code.OPERATION_TIMEOUT if timed_out else Code.STORE_ERROR
            return _error(500, code, f"The schemas topic cannot be used: {error}", content_type)
        if isinstance(answer, Text):
            return HttpResponse(200, answer.text.encode(), content_type)
        return HttpResponse(200, _dump(answer), content_type)

    async def _answer(self, request: HttpRequest) -> Any:
        parts = urlsplit(request.target)
        segments = path_segments(parts.path)
        context = DEFAULT_CONTEXT
        if len(segments) > 1 and segments[0] == "contexts":
            context = segments[1].strip(":") or DEFAULT_CONTEXT
            context = context if context.startswith(".") else f".{context}"
            segments = segments[2:]
        try:
            handler, arguments = self._routes.find(request.method, segments)
        except NoRouteError as error:
            raise RegistryError(error.status, str(error)) from None
        query = parse_qs(parts.query, keep_blank_values=True)
        call = Call(self._registry, arguments, query, request.body, context)
        if handler in LASTING and not any(name in query for name in CHANGING):
            try:
                return await handler(call)
            except RegistryError as error:
                if error.status != 404:
                    raise
        await self._registry.refresh()
        return await handler(call)


def _choose_content_type(accept: str) -> str:
    """The first content type in the Accept header that the registry supports; the registry's own type if the header has
    none of them.
    """
    for part in accept.split(","):
        name = part.partition(";")[0].strip()
        if name in _CONTENT_TYPES:
            return name
    return CONTENT_TYPE


def _error(status: int, code: int, message: str, content_type: str) -> HttpResponse:
    return HttpResponse(status, _dump({"error_code": int(code), "message": message}), content_type)


def _dump(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(errors="backslashreplace")
