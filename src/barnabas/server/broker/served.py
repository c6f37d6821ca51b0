"""Value: what the listeners of brokers, or those of controllers, serve: the APIs, and the ports of their handlers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.protocol.wire.apis import ApiKey
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.apis import ApiTable
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.broker.request_context import RequestContext

Handle = Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Message | None]]
"""A handler: of the port of its folder, the context of the request and its message. It returns the response, or None
if the request gets no response. May raise what its coroutine raises: the authorization of a request runs before the
coroutine exists."""

_HANDLERS = "barnabas.server.broker.handlers"


class ServedApis(Struct, frozen=True):
    """The APIs of one kind of listeners."""

    apis: ApiTable
    ports: Mapping[str, Any]
    """The port of each folder of handlers, by the name of the folder."""
    clock: Clock
    authorizer: Authorizer | None
    """None if every client may do everything."""
    on_disconnect: Callable[[int], None]
    """Called with the number of a connection that has ended."""


def load_handler(folder: str, key: ApiKey) -> Handle:
    """The handler of an API: `handle` in the module of the API's name, or else the function of that name in
    `forwards.py`."""
    name = key.name.lower()
    module = f"{_HANDLERS}.{folder}.{name}"
    try:
        found: Handle = import_module(module).handle
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        found = getattr(import_module(f"{_HANDLERS}.{folder}.forwards"), name)
    return found
