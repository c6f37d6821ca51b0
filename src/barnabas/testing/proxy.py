"""Shell: a TCP proxy in front of a broker, whose connections can be slow, limited, silent, reset or refused.

    with EmbeddedBroker(proxied=True) as broker:
        broker.proxy.delay(200)          # 200 ms in each direction
        broker.proxy.cut()               # connections stay open, and nothing arrives any more
        broker.proxy.heal()

A client that has learnt an address from a broker's metadata connects to that address. So a broker behind a proxy has to
advertise the address of the proxy; `listeners_behind` has the configs for that.

    client --> proxy (advertised) --> listener PLAINTEXT of the broker
    other brokers ------------------> listener INTERNAL of the broker
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from barnabas.client.loop_thread import LoopThread

READ_BYTES: Final = 64 * 1024
QUEUED_MAX: Final = 64
"""The number of pieces that are on their way in each direction of a connection; after that TCP's flow control works."""
SLICES_PER_SECOND: Final = 20
"""With a limited rate, bytes are written in pieces of a twentieth of a second."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER by which `close` sends RST instead of FIN."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to bytes on their way. Without an argument: nothing."""

    delay_s: float = 0.0
    bytes_per_s: float | None = None
    cut: bool = False


class Proxy:
    """A proxy on a free port of 127.0.0.1, with an event loop and a thread of its own. `forward_to` says where to.

    The faults last until `heal`, and work on open connections and on new ones. All methods may be called from any
    thread, and from coroutines: they return within milliseconds.
    """

    def __init__(self, target: str = "") -> None:
        self.port = 0
        self._target = target
        self._faults = Faults()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._thread = LoopThread("barnabas-proxy")
        try:
            self._thread.run(self._listen)
        except BaseException:  # KeyboardInterrupt, too: the thread must end
            self._thread.close()
            raise

    @property
    def address(self) -> str:
        """The `host:port` to which clients connect."""
        return f"127.0.0.1:{self.port}"

    def forward_to(self, target: str) -> None:
        """Forward new connections to this `host:port`."""
        self._target = target

    def delay(self, delay_ms: float) -> None:
        """Let every byte arrive so much later, in each direction; a request and its response take twice as long."""
        self._thread.run(lambda: self._set(replace(self._faults, delay_s=delay_ms / 1000)))

    def throttle(self, bytes_per_s: float) -> None:
        """Limit the rate of each connection, in each direction. Raises ValueError unless it is above 0."""
        if bytes_per_s <= 0:
            raise ValueError(f"throttle: bytes_per_s must be above 0, not {bytes_per_s}; cut() lets nothing pass.")
        self._thread.run(lambda: self._set(replace(self._faults, bytes_per_s=bytes_per_s)))

    def cut(self) -> None:
        """Let nothing pass, as when a cable is pulled: open connections stay open and are silent, new ones are
        accepted and not answered. What was sent meanwhile arrives after `heal`."""
        self._thread.run(lambda: self._set(replace(self._faults, cut=True)))

    def reset(self) -> None:
        """Reset all open connections. New ones are served."""
        self._thread.run(self._reset)

    def refuse(self) -> None:
        """Reset all open connections, and refuse new ones, as when no process listens."""
        self._thread.run(self._refuse)

    def heal(self) -> None:
        """End all faults."""
        self._thread.run(self._heal)

    def close(self) -> None:
        """Reset all connections, and end the thread. May be called twice."""
        if not self._thread.loop.is_closed():
            self._thread.run(self._refuse)
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _set(self, faults: Faults) -> None:
        self._faults = faults
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _heal(self) -> None:
        await self._set(Faults())
        await self._listen()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._reset()

    async def _reset(self) -> None:
        ending = dict(self._connections)
        for task, writers in ending.items():
            for writer in writers:
                plain: socket.socket = writer.get_extra_info("socket")
                with suppress(OSError):  # the connection has ended already
                    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, until both sides have ended it or one is reset."""
        task = asyncio.current_task()
        assert task is not None
        writers = self._connections[task] = [writer]
        try:
            await self._serve(reader, writers)
        except asyncio.CancelledError:
            pass  # by `_reset`; asyncio.start_server of Python 3.11 logs handlers that end by a cancellation
        finally:
            for one in writers:
                one.transport.abort()
            del self._connections[task]

    async def _serve(self, reader: asyncio.StreamReader, writers: list[asyncio.StreamWriter]) -> None:
        try:
            await self._until_uncut()
            host, _, port = self._target.rpartition(":")
            broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
            writers.append(broker_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, broker_writer))
                both.create_task(self._forward(broker_reader, writers[0]))
        except* OSError:
            pass  # one side is gone: the other side must see that, too

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction of a connection. The bytes that are delayed wait in a queue, so that a delay limits no rate."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUED_MAX)
        loop = asyncio.get_running_loop()

        async def read() -> None:
            while True:
                piece = await reader.read(READ_BYTES)
                await pieces.put((loop.time(), piece))
                if not piece:
                    return

        async with asyncio.TaskGroup() as both:
            both.create_task(read())
            while True:
                arrived, piece = await pieces.get()
                await asyncio.sleep(max(arrived + self._faults.delay_s - loop.time(), 0))
                await self._write(writer, piece)
                if not piece:
                    return

    async def _write(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Write one piece, at the limited rate and not while the connection is cut. An empty piece is the end."""
        if not piece:
            await self._until_uncut()
            writer.write_eof()
        while piece:
            rate = self._faults.bytes_per_s
            size = len(piece) if rate is None else max(int(rate / SLICES_PER_SECOND), 1)
            if rate is not None:
                await asyncio.sleep(min(size, len(piece)) / rate)
            await self._until_uncut()
            writer.write(piece[:size])
            await writer.drain()
            piece = piece[size:]

    async def _until_uncut(self) -> None:
        while self._faults.cut:
            await self._changed.wait()


def listeners_behind(proxy: Proxy, client: str, internal: str, controller: str = "") -> dict[str, str]:
    """The configs of a broker whose clients come through `proxy`. `client`, `internal` and `controller` are the
    `host:port` of its listeners: for clients, for other brokers, and, if it is a controller too, for the quorum."""
    listeners = [f"PLAINTEXT://{client}", f"INTERNAL://{internal}"]
    if controller:
        listeners.append(f"CONTROLLER://{controller}")
    return {
        "listeners": ",".join(listeners),
        "advertised.listeners": f"PLAINTEXT://{proxy.address},INTERNAL://{internal}",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
