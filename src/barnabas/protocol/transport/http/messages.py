"""Value: the requests and responses of the HTTP APIs, whole and in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct, field


class HttpRequest(Struct, frozen=True):
    """A complete request. `target` is the path with its query, as sent; header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpResponse(Struct, frozen=True):
    """A complete HTTP response: status, headers and body."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers a request. If the handler raises, the exception is logged and the response has status 500."""
