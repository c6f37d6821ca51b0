"""Shell: one connection that a listener accepted: passes requests to the handler and writes the responses, in order.

    get_buffer -> the socket -> buffer_updated -> handler (eagerly) -> ServerConnection.respond -> writelines

There is back-pressure in both directions. The connection stops reading while too many requests wait on this connection
or on the whole node, and starts no request while the client does not receive its responses. A slow client delays only
its own requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from barnabas.core.buffers import Buffer
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.principals import ANONYMOUS
from barnabas.protocol.transport.limits import SCANT_BYTES, UNSENT_COUNTED_BYTES
from barnabas.protocol.transport.ports import Answer, CloseConnectionError, Finished, Peer, RequestScheduling
from barnabas.protocol.transport.turn_taking import REQUEST_S, in_turns
from barnabas.protocol.transport.turns import NO_SHARE, Share
from barnabas.protocol.wire.errors import WireError
from barnabas.protocol.wire.frame_buffer import write_pieces
from barnabas.protocol.wire.server_conn import ReceivedRequest, ServerConnection

if TYPE_CHECKING:
    from barnabas.protocol.transport.listener import Listener

log = get_logger("barnabas.protocol.transport")

_LINGER_S = 5.0
"""A closed connection has this long to send the responses that are already written; then it is aborted."""
_WRITE_AT = 64
"""This many response buffers are written to the socket at once, although more requests are waiting."""
_BEHIND_BYTES = 1_048_576
"""A connection is not read while requests of this many bytes wait for the response to an earlier request."""
_SLICE_BYTES = 131_072
"""After so many bytes of responses in a row, a connection waits for its next turn."""


class AcceptedConnection(asyncio.BufferedProtocol):
    """One accepted connection, driven by the transport's callbacks.

    A request has a task only if its handler suspends.
    """

    def __init__(self, owner: Listener) -> None:
        self._owner = owner
        self._wire = ServerConnection(owner.limits.socket_request_max_bytes, owner.memory)
        self._frames = self._wire.frames
        self._waiting: deque[ReceivedRequest] = deque()
        self._waiting_bytes = 0
        self._counted = (0, 0)  # the waiting requests, and the bytes of requests, that are counted in the node's budget
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._muted_until = 0.0
        self._muted = False  # a quota delays this client: no request starts, and none is read
        self._blocked = False  # the request under way must be answered before the next one starts
        self._writable = True
        self._reading = True
        self._closing = False
        self._starting = False
        self._outgoing: list[Buffer] = []
        self._outgoing_bytes = 0
        self._unsent = 0  # the unsent bytes of this connection that are counted in the node's budget
        self.share = NO_SHARE
        self._share_of = ""
        self.usage = owner.new_usage()
        self._is_slow = False  # the transport has more unsent bytes than UNSENT_COUNTED_BYTES
        self._cancellable: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport | None = None
        self._peer: Peer | None = None
        self.last_active = 0.0

    # ---- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's transport is one by behaviour, not by class
        self._transport = transport
        self.last_active = self._owner.now()
        transport.set_write_buffer_limits(high=UNSENT_COUNTED_BYTES)
        self._owner.accept(self, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        target = self._frames.target()
        return target[:SCANT_BYTES] if self._owner.budget.is_exhausted and not self._frames.reserved_bytes else target

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        owner, usage = self._owner, self.usage
        now = self.last_active = owner.now()
        if now >= usage.due and self._peer is not None and owner.clients is not None:
            owner.clients.on_due(self._peer, now)
        usage.bytes_in += nbytes
        try:
            requests = self._wire.received(nbytes)
        except WireError as error:
            self._on_bad_frame(error)
            return
        if requests:
            for request in requests:
                self._waiting_bytes += len(request.frame)
            self._waiting += requests
            if request.header.client_id != usage.client_id:
                self._on_client_id(request.header.client_id)
            self.start_waiting()
        if owner.budget.counts_bytes:
            self._count_waiting()
            self._regulate()

    def _read_on(self) -> bool:
        """Read further requests of what was received. Returns whether there is one."""
        try:
            requests = self._wire.read_on()
        except WireError as error:
            self._on_bad_frame(error)
            return False
        self._waiting_bytes += sum(len(request.frame) for request in requests)
        self._waiting += requests
        return bool(requests)

    def _on_client_id(self, client_id: str | None) -> None:
        clients = self._owner.clients
        if self._peer is None or clients is None:
            self.usage.client_id = client_id
        else:
            clients.on_client_id(self._peer, client_id, self.last_active)

    def data_received(self, data: bytes) -> None:
        """For in-memory transports, which have bytes and no socket to receive from."""
        for count in write_pieces(data, lambda: self.get_buffer(-1)):
            self.buffer_updated(count)

    def pause_writing(self) -> None:
        self._is_slow = True
        self._count_unsent()

    def resume_writing(self) -> None:
        self._is_slow = False
        self._writable = True
        self._count_unsent()
        self.last_active = self._owner.now()
        self.start_waiting()

    def eof_received(self) -> bool:
        return False  # close: the client will send no more, and its requests need no response, as in Kafka

    def connection_lost(self, exc: Exception | None) -> None:
        self._frames.drop()
        self._closing = True
        self._waiting.clear()
        self._waiting_bytes = 0
        self._count_waiting()
        self._is_slow = False
        self._count_unsent()
        self._owner.budget.forget(self)
        for task in list(self._cancellable):
            task.cancel()
        self._owner.forget(self)
        if self._peer is not None:
            if self._owner.clients is not None:
                self._owner.clients.on_closed(self._peer, self._owner.now())
            self._owner.handler.on_closed(self._peer)

    def _on_bad_frame(self, error: WireError) -> None:
        self.close(f"bad frame: {error}")

    # ---- for the owner

    def hold(self) -> None:
        """Do not read from the client before `enter`."""
        self._regulate()
        asyncio.get_running_loop().call_soon(self._regulate)  # uvloop starts to read after `connection_made`

    def enter(self, peer: Peer) -> None:
        """The limits of connections admit this one."""
        self._peer = peer
        self.last_active = self._owner.now()
        if not self._reading:
            self.start_waiting()

    def refuse(self) -> None:
        """Close the connection, which was not admitted."""
        self._closing = True
        assert self._transport is not None
        self._transport.abort()

    @property
    def closing(self) -> bool:
        """Whether the connection is being closed."""
        return self._closing

    @property
    def peer(self) -> Peer | None:
        return self._peer

    @property
    def idle(self) -> bool:
        """True if no request is being handled or waits to be handled.

        A partly received request does not count, and neither do requests that wait because the client does not receive
        its responses: such a connection may be closed by connections.max.idle.ms.
        """
        return not self._in_flight and not self._muted and (not self._waiting or not self._writable)

    def close(self, reason: str, *, expected: bool = False) -> None:
        """Close the connection after the responses that are already written. Later responses are dropped."""
        if self._closing:
            return
        self._closing = True
        emit = log.debug if expected else log.warning
        emit("connection closed", peer=str(self._peer), reason=reason)
        assert self._transport is not None
        if self._outgoing:
            self._write_out()
        self._transport.close()
        if self._transport.get_write_buffer_size():  # a client that does not read must not hold memory
            asyncio.get_running_loop().call_later(_LINGER_S, self._transport.abort)

    # ---- requests

    def start_waiting(self) -> None:
        """Start waiting requests, in order, until one must be answered first, back-pressure applies, or the connection
        or the node has used its share of this turn of the loop.
        """
        transport = self._transport
        if self._starting or self._peer is None or transport is None or transport.is_closing():
            return
        waiting, owner, frames = self._waiting, self._owner, self._frames
        turns = owner.turns
        if (turns.is_busy or turns.left <= 0) and turns.served is not self and (waiting or frames.has_more):
            turns.wait(self)
            self._count_waiting()
            self._regulate()
            return
        self._starting = True
        started = 0
        clock = turns.clock
        began = clock()
        try:
            while (
                (waiting or (frames.has_more and self._read_on()))  # the next one may have waited to be read
                and self._writable
                and not self._blocked
                and not self._muted
                and not self._closing
                and self._in_flight < owner.limits.pipelined_requests_max
            ):
                if started and (clock() - began >= turns.slice_s or self._outgoing_bytes >= _SLICE_BYTES):
                    turns.wait(self)
                    break
                request = waiting.popleft()
                started += 1
                self._waiting_bytes -= len(request.frame)
                self._start(request)
        finally:
            self._starting = False
            if self._outgoing:
                self._write_out()
            if started:
                spent = clock() - began
                if spent < started * REQUEST_S:
                    spent = started * REQUEST_S
                turns.left -= spent
                usage = self.usage
                usage.requests += started
                usage.seconds += spent
        if waiting or self._counted[0]:
            self._count_waiting()
        if waiting or self._in_flight or not self._reading or not self._writable:
            self._regulate()

    def fail(self) -> None:
        self.close("a request of this connection failed: see the log of the node")

    def find_share(self) -> Share:
        if self._peer is not None:
            listener, client = self.client
            if client != self._share_of:
                self._share_of = client
                self.share = self._owner.turns.turns.share(listener, client, self)
        return self.share

    @property
    def client(self) -> tuple[str, str]:
        peer = self._peer
        assert peer is not None
        return peer.listener, peer.host if peer.principal is ANONYMOUS else str(peer.principal)

    def _start(self, request: ReceivedRequest) -> None:
        peer = self._peer
        assert peer is not None
        self._in_flight += 1
        try:
            outcome = self._owner.handler.begin(request, peer)
        except CloseConnectionError as error:
            self._in_flight -= 1
            self.close(str(error))
            return
        except Exception:  # a bug in the handler ends this connection, and must not end the listener
            self._in_flight -= 1
            log.exception("request failed", peer=str(self._peer), api_key=request.header.api_key)
            self.close("an unexpected error in a handler")
            return
        if type(outcome) is Finished:
            self._in_flight -= 1
            self._answer(request, outcome.value)
            return
        rest = cast("Coroutine[Any, Any, Answer]", outcome)
        scheduling = self._owner.handler.scheduling(request)
        if scheduling is not RequestScheduling.PIPELINED:
            self._blocked = True
        task = self._owner.spawn(self._finish(request, rest, scheduling))
        if self._owner.budget.counts_bytes:
            self._in_flight_bytes += len(request.frame)
            task.add_done_callback(partial(self._on_done, len(request.frame)))
        if scheduling is RequestScheduling.CANCELLABLE:
            self._cancellable.add(task)
            task.add_done_callback(self._cancellable.discard)

    def _on_done(self, size: int, task: asyncio.Task[None]) -> None:
        """The task of a request of this size has ended, perhaps by cancellation: its memory is free."""
        self._in_flight_bytes -= size
        self._count_waiting()

    async def _finish(
        self, request: ReceivedRequest, rest: Coroutine[Any, Any, Answer], scheduling: RequestScheduling
    ) -> None:
        reason = ""
        answer: Answer = None
        try:
            answer = await in_turns(rest, self, self._owner.turns)
        except CloseConnectionError as error:
            reason = str(error)
        except Exception:  # a bug in the handler ends this connection, and must not end the listener
            log.exception("request failed", peer=str(self._peer), api_key=request.header.api_key)
            reason = "an unexpected error in a handler"
        self._in_flight -= 1
        if scheduling is not RequestScheduling.PIPELINED:
            self._blocked = False
        if reason:
            self.close(reason)
        if not self._closing:
            self._answer(request, answer)
            if self._waiting or not self._reading:
                self.start_waiting()

    def _answer(self, request: ReceivedRequest, answer: Answer) -> None:
        if self._closing:
            return
        parts = self._wire.respond(request, answer)
        outgoing = self._outgoing
        outgoing += parts
        self._outgoing_bytes += sum(map(len, parts))
        if outgoing and (not self._starting or len(outgoing) >= _WRITE_AT):
            self._write_out()
        peer = self._peer
        if peer is not None and peer.muted_until:
            self._mute(peer.muted_until)

    def _mute(self, until: float) -> None:
        """Neither read nor start requests before this time, because of a quota."""
        assert self._peer is not None
        self._peer.muted_until = 0.0
        if until <= self._owner.now():
            return
        self._muted = True
        self._regulate()
        asyncio.get_running_loop().call_at(until, self._unmute, until)
        self._muted_until = max(until, self._muted_until)

    def _unmute(self, until: float) -> None:
        if until < self._muted_until or self._closing:
            return  # another response has muted the connection for longer
        self._muted = False
        self.last_active = self._owner.now()
        self.start_waiting()
        self._regulate()

    def _write_out(self) -> None:
        """Write the collected responses with one system call."""
        transport = self._transport
        assert transport is not None
        buffers, self._outgoing = self._outgoing, []
        size, self._outgoing_bytes = self._outgoing_bytes, 0
        self.usage.bytes_out += size
        if not transport.is_closing():
            was_slow = self._is_slow
            transport.writelines(buffers)
            if was_slow:
                self._count_unsent(size)

    def _count_waiting(self) -> None:
        """Count the requests of now in the node's budget, in place of those that were counted before."""
        requests, size = self._counted
        held = 0
        if self._owner.budget.counts_bytes:
            held = self._waiting_bytes + self._in_flight_bytes + self._frames.reserved_bytes
        self._counted = (len(self._waiting), held)
        self._owner.budget.add(self._counted[0] - requests, held - size)

    def on_memory_free(self) -> None:
        self._regulate()

    def _count_unsent(self, written: int = 0) -> None:
        """Count the unsent bytes of now in the node's budget; `written` were added since they were counted last."""
        size = self.unsent_bytes()
        is_progress = size < self._unsent + written
        self._unsent = size
        self._owner.budget.count_unsent(self, size, is_progress=is_progress)
        self._writable = size <= self._owner.limits.write_buffer_bytes
        if not self._writable:
            self._regulate()

    def unsent_bytes(self) -> int:
        if not self._is_slow or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    def drop(self) -> None:
        """Close the connection, whose client does not receive its responses, without sending them."""
        self._unsent, self._is_slow, self._closing = 0, False, True
        self._owner.on_dropped(self)
        assert self._transport is not None
        self._transport.abort()

    def _regulate(self) -> None:
        """Read from the socket if another request may be stored; stop reading if not."""
        if self._closing or self._transport is None:
            return
        owner = self._owner
        waiting = self._waiting
        below_limit = len(waiting) + self._in_flight < owner.limits.pipelined_requests_max
        if below_limit and self._blocked and waiting:
            below_limit = self._waiting_bytes < _BEHIND_BYTES
        may_read = below_limit and self._writable and not self._muted and (not owner.budget.spent or not waiting)
        if self._frames.has_more:
            may_read = False
        if owner.budget.is_exhausted and may_read and not self._frames.reserved_bytes:
            may_read = False
            owner.budget.pause(self)
        if self._peer is None:  # not admitted yet
            self._reading = False
            self._transport.pause_reading()
        elif may_read and not self._reading:
            self._reading = True
            self._transport.resume_reading()
        elif not may_read and self._reading:
            self._reading = False
            self._transport.pause_reading()
