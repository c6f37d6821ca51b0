"""Shell: a TCP proxy before a broker. It can vanish when a request arrives, as a broker that dies during a call."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

from barnabas.client.loop_thread import LoopThread
from barnabas.protocol.wire.apis import ApiKey

_PREPARING: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.METADATA})
"""The requests that a client sends before the request of a call."""


class CutProxy:
    """Listens on a free port, `port`, and forwards to `target`, which can be set later."""

    def __init__(self) -> None:
        self.target = ("127.0.0.1", 0)
        self._thread = LoopThread("proxy")
        self._cuts = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self._thread.run(self._listen)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._stop)
        self._thread.close()

    def restore(self) -> None:
        """Listen again, and forward everything."""
        self._thread.run(self._listen)

    def cut_at_next_request(self) -> None:
        """Forward until a request arrives that is not in `_PREPARING`; then reset all connections and refuse others."""
        self._cuts = True

    async def _listen(self) -> None:
        self._cuts = False
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _vanish(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _stop(self) -> None:
        await self._vanish()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, upstream}
        for source, sink, requests in ((reader, upstream, True), (upstream_reader, writer, False)):
            task = asyncio.get_running_loop().create_task(self._forward(source, sink, requests=requests))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, requests: bool) -> None:
        try:
            while data := await source.read(65_536):
                if requests and self._cuts and int.from_bytes(data[4:6]) not in _PREPARING:
                    await self._vanish()
                    return
                sink.write(data)
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.close()
