"""Machine: finds the handler of an HTTP request by its method and path. The handlers are values of any type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar
from urllib.parse import unquote

from barnabas.core.errors import BarnabasError

HandlerT = TypeVar("HandlerT")


class NoRouteError(BarnabasError):
    """No handler fits: `status` is 404 for an unknown path, and 405 for a path that has other methods."""

    def __init__(self, status: int) -> None:
        super().__init__("HTTP 404 Not Found" if status == 404 else "HTTP 405 Method Not Allowed")
        self.status = status


class _RouteNode(Generic[HandlerT]):
    """One path segment in the tree of routes."""

    def __init__(self) -> None:
        self.named: dict[str, _RouteNode[HandlerT]] = {}
        self.any: tuple[str, _RouteNode[HandlerT]] | None = None
        self.handlers: dict[str, HandlerT] = {}


class RouteTree(Generic[HandlerT]):
    """All routes of an API: (method, path, handler). `{x}` in a path matches one segment."""

    def __init__(self, routes: Iterable[tuple[str, str, HandlerT]]) -> None:
        self._root: _RouteNode[HandlerT] = _RouteNode()
        for method, path, handler in routes:
            node = self._root
            for segment in filter(None, path.split("/")):
                if segment.startswith("{"):
                    node.any = node.any or (segment[1:-1], _RouteNode())
                    node = node.any[1]
                else:
                    node = node.named.setdefault(segment, _RouteNode())
            node.handlers[method] = handler

    def find(self, method: str, segments: list[str]) -> tuple[HandlerT, Mapping[str, str]]:
        """The handler, and the segments that matched `{x}`, by name. HEAD is handled as GET. Raises NoRouteError."""
        node, arguments = self._root, {}
        for segment in segments:
            if segment in node.named:
                node = node.named[segment]
            elif node.any is not None:
                name, node = node.any
                arguments[name] = segment
            else:
                raise NoRouteError(404)
        if not node.handlers:
            raise NoRouteError(404)
        handler = node.handlers.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise NoRouteError(405)
        return handler, arguments


def path_segments(path: str) -> list[str]:
    """The segments of a path, percent-decoded."""
    return [unquote(segment) for segment in path.split("/") if segment]
