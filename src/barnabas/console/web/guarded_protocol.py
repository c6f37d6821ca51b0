"""Shell: uvicorn's HTTP protocol with slots and deadlines, which an ASGI application cannot have.

| The client owes | Deadline |
|---|---|
| the first request, or the rest of a request's head | HEAD_S |
| the rest of a body | BODY_S |
| the receipt of what was sent | RECEIPT_S |

A connection that waits for its client makes room for others (`http_slots.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from barnabas.protocol.transport.http_slots import HttpSlots

HEAD_S: Final = 10.0
BODY_S: Final = 60.0
RECEIPT_S: Final = 60.0


def guarded_protocol(
    slots: HttpSlots, *, head_s: float = HEAD_S, body_s: float = BODY_S, receipt_s: float = RECEIPT_S
) -> type[H11Protocol]:
    """The class of the connections that share these slots."""

    class GuardedProtocol(H11Protocol):
        """One connection."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._deadline: asyncio.TimerHandle | None = None
            self._owed: object = None
            """The state of the client for which the deadline was set: the drops of a slow body do not move it."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn gives a Transport
            peer = transport.get_extra_info("peername")
            super().connection_made(transport)
            if slots.enter(self, str(peer[0]) if peer else ""):
                self._expect(h11.IDLE, head_s)
            else:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            slots.leave(self)
            self._expect(None, None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.transport.is_closing():
                return
            state = self.conn.their_state
            if state is h11.IDLE:
                self._expect(state, head_s)
            elif state is h11.SEND_BODY:
                self._expect(state, body_s)
            else:
                slots.handle(self)
                self._expect(None, None)

        def on_response_complete(self) -> None:
            slots.wait(self)
            self._expect(None, None)  # uvicorn closes an idle connection
            super().on_response_complete()

        def pause_writing(self) -> None:
            slots.wait(self)
            self._expect("receipt", receipt_s)
            super().pause_writing()

        def resume_writing(self) -> None:
            slots.handle(self)
            self._expect(None, None)
            super().resume_writing()

        def abort(self) -> None:
            """Close the connection at once: it makes room, or its client is too slow."""
            self.transport.abort()

        def _expect(self, owed: object, seconds: float | None) -> None:
            if owed is self._owed and owed is not None:
                return
            self._owed = owed
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            if seconds is not None:
                self._deadline = self.loop.call_later(seconds, self.abort)

    return GuardedProtocol
