"""Shell: a whole broker inside the test's process, with real sockets, real files and Kafka's wire protocol. The broker
stops when the `with` block ends.

    with EmbeddedBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    broker.restart()                     # the data and the address stay
    broker.pause()                       # the broker answers nothing until broker.resume()

An embedded broker differs from `barnabas serve` only in its settings: a temporary directory, any free port, internal
topics with few partitions, no rebalance delay, and no fsync of metadata, because the data is deleted at the end.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final

from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.server.node.server import Node
    from barnabas.testing.proxy import Proxy

SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "mirror.state.topic.num.partitions": "4",
    "log.initial.task.delay.ms": "500",
}
"""The defaults of an embedded broker. Settings of the caller override them."""
START_TIMEOUT_S: Final = 30.0


class EmbeddedBrokerError(BarnabasError):
    """The broker did not start, or did not stop."""


class AsyncEmbeddedBroker:
    """An embedded broker on the running event loop: `async with AsyncEmbeddedBroker() as broker: ...`."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: str | None = None,
        listener: str = "PLAINTEXT://127.0.0.1:0",
        proxied: bool = False,
    ) -> None:
        self._config = {**SETTINGS, **(config or {})}
        self._listener: str | None = listener
        self._proxied = proxied
        self._proxy: Proxy | None = None
        self._temporary = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="barnabas-")
        self.bootstrap_servers = ""
        """`host:port`, after the start; empty before."""
        self.node: Node | None = None
        self._run: asyncio.Task[None] | None = None

    @property
    def proxy(self) -> Proxy:
        """The proxy between the clients and the broker, which makes faults. Raises EmbeddedBrokerError without
        `proxied=True`, and before the start."""
        if self._proxy is None:
            raise EmbeddedBrokerError("Without EmbeddedBroker(proxied=True), and before its start, there is no proxy.")
        return self._proxy

    async def start(self) -> None:
        """Starts the broker. Returns when clients may connect. Raises the exception that prevented the start."""
        if self._proxied and self._proxy is None:
            self._listen_behind_proxy()
        await self._start_node()

    async def restart(self) -> None:
        """Shuts the broker down cleanly, and starts it again on the same data and the same address."""
        await self._stop_node()
        if not self._proxied:
            self._listener = f"PLAINTEXT://{self.bootstrap_servers}"
        await self._start_node()

    def _listen_behind_proxy(self) -> None:
        from barnabas.testing.ports import free_ports
        from barnabas.testing.proxy import Proxy, listeners_behind

        client, internal = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._proxy = Proxy(client)
        self._config |= listeners_behind(self._proxy, client, internal)
        self._listener = None

    async def _start_node(self) -> None:
        from barnabas.server.node.config import build_config
        from barnabas.server.node.server import Node

        config = build_config(
            self._config, data_dir=self.data_dir, listener=self._listener, metadata_fsync=not self._temporary
        )
        ready = asyncio.get_running_loop().create_future()
        node = self.node = Node(config)
        self._run = asyncio.create_task(node.run(lambda _: ready.set_result(None)), name="embedded broker")
        await asyncio.wait((self._run, ready), return_when=asyncio.FIRST_COMPLETED)
        if self._run.done():
            await self._run
            raise EmbeddedBrokerError("The embedded broker ended while it was starting.")
        self.bootstrap_servers = node.bootstrap_servers if self._proxy is None else self._proxy.address

    async def _stop_node(self) -> None:
        node, run = self.node, self._run
        self.node = self._run = None
        if node is not None and run is not None:
            node.stop()
            await run

    async def stop(self) -> None:
        """Shuts the broker down cleanly, and removes the data directory if it is temporary."""
        try:
            await self._stop_node()
        finally:
            if self._proxy is not None:
                self._proxy.close()
                self._proxy = None
            if self._temporary:
                shutil.rmtree(self.data_dir, ignore_errors=True)

    async def __aenter__(self) -> AsyncEmbeddedBroker:
        try:
            await self.start()
        except BaseException:  # cancellation, too: the broker must not go on running
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


class EmbeddedBroker:
    """An embedded broker on an event loop and a thread of its own, for synchronous tests and any kind of client.

    `config` has broker settings by Kafka's names. With `data_dir` the data stays when the broker stops, and another
    broker can open the same directory. With `proxied` all clients connect to `proxy`, which makes faults.
    """

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        data_dir: str | None = None,
        listener: str = "PLAINTEXT://127.0.0.1:0",
        proxied: bool = False,
    ) -> None:
        self._inner = AsyncEmbeddedBroker(config, data_dir=data_dir, listener=listener, proxied=proxied)
        self._go_on: threading.Event | None = None
        """Set by `resume`, while the broker is paused; None while the broker runs."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The value of `bootstrap.servers` for clients."""
        return self._inner.bootstrap_servers

    @property
    def data_dir(self) -> str:
        return self._inner.data_dir

    @property
    def proxy(self) -> Proxy:
        """The proxy between the clients and the broker, which makes faults. Raises EmbeddedBrokerError without
        `proxied=True`, and before the start."""
        return self._inner.proxy

    @property
    def node(self) -> Node | None:
        """The node, for reading metrics and its identity. The node belongs to another thread. None when the broker is
        not running."""
        return self._inner.node

    def start(self) -> EmbeddedBroker:
        """Starts the broker. Returns when clients may connect. Raises the exception that prevented the start."""
        if self._thread is not None:
            raise EmbeddedBrokerError("This embedded broker is running already; make another one.")
        self._thread = threading.Thread(target=self._main, name="barnabas-embedded", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise EmbeddedBrokerError(f"The embedded broker was not ready within {START_TIMEOUT_S:.0f} s.")
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure
        return self

    def pause(self) -> None:
        """Stops the broker's event loop, as SIGSTOP stops a process: connections stay open, and nothing is answered.
        Returns when the loop stands still. Does nothing if the broker is paused."""
        if self._loop is None or self._go_on is not None:
            return
        stands, go_on = threading.Event(), threading.Event()

        def stand() -> None:
            stands.set()
            go_on.wait()

        self._go_on = go_on
        self._loop.call_soon_threadsafe(stand)
        stands.wait()

    def resume(self) -> None:
        """Lets a paused broker go on. Does nothing if the broker is not paused."""
        if self._go_on is not None:
            self._go_on.set()
            self._go_on = None

    def restart(self) -> None:
        """Shuts the broker down cleanly, and starts it again on the same data and the same address. Raises
        EmbeddedBrokerError if the broker is not running."""
        if self._loop is None or self._thread is None:
            raise EmbeddedBrokerError("An embedded broker that is not running cannot be restarted; start it.")
        self.resume()
        asyncio.run_coroutine_threadsafe(self._inner.restart(), self._loop).result()

    def stop(self) -> None:
        """Shuts the broker down cleanly. Does nothing if the broker is not running."""
        self.resume()
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that starts or stops the broker
            self._failure = error
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._inner:
            self._ready.set()
            await self._stop.wait()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
