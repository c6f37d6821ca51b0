"""Value: what a guard decides about a request.

None       the handler answers the whole request
Message    the guard has answered; the handler does not run
Narrowed   the handler answers what is left of the request, and a function adds to its response what was refused
Later      the checks take long: they are awaited before anything else, and decide one of the above
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from barnabas.protocol.wire.schema import Message


class Narrowed(Struct, frozen=True):
    """The handler answers what is left of the request."""

    complete: Callable[[Any], Any]
    """Adds to the handler's response what was refused, and returns it; a coroutine function if `is_slow`."""
    is_slow: bool = False


Decided = Message | Narrowed | None


class Later(Struct, frozen=True):
    """The checks take long."""

    decided: Coroutine[Any, Any, Decided]


Outcome = Decided | Later
