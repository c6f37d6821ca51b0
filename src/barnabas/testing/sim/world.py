"""Shell: a simulated world of hosts, a network, a clock and randomness, all derived from one seed. `run` runs a test in
such a world.

    async def scenario(world: World) -> None:
        await world.start_broker()
        async with world.producer() as producer:
            await producer.send_and_wait("orders", b"hello")
        await asyncio.sleep(7 * 24 * 3600)          # a simulated week

    run(scenario, seed=7)

Nodes and clients run the production code. Code that belongs to no simulated process is the test itself; the network
never partitions it from other hosts.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from barnabas.client.admin import AsyncAdmin
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.config import ADMIN_CONFIGS, CONSUMER_CONFIGS, PRODUCER_CONFIGS, resolve_config
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.options import ClusterConfig
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.core.config import ConfigDef
from barnabas.core.errors import KafkaError
from barnabas.testing.sim.clock import SimClock
from barnabas.testing.sim.cluster.cluster import SimCluster
from barnabas.testing.sim.cluster.layout import ClusterLayout
from barnabas.testing.sim.errors import CrashError, LivenessError
from barnabas.testing.sim.guard import no_endless_callback, no_real_world
from barnabas.testing.sim.loop import SimLoop
from barnabas.testing.sim.network import SimNetwork
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.process import CURRENT, Process, ProcessState, discard
from barnabas.testing.sim.trace import Trace

T = TypeVar("T")
_START: Final = 1_000.0
_LINES_SHOWN: Final = 60


class World:
    """A simulated world, made by `run`. Tests may inspect and change all its parts."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.loop = SimLoop(self.random_stream("loop"), start=_START)
        self.trace = Trace(self.loop.time, _START)
        self.network = SimNetwork(self.loop, self.random_stream("network"), self.trace)
        self.loop.network = self.network
        self.clock = SimClock(self.loop)
        """The correct clock. Every node has a clock of its own, which may be wrong."""
        self.nodes: dict[str, SimNode] = {}
        self.processes: list[Process] = []
        self.login: Mapping[str, str] = {}
        """Settings with which clients log in, unless they have others."""
        self.crashes: list[str] = []
        """Unhandled exceptions, with their tracebacks."""
        self._client_rng = self.random_stream("clients")

    def random_stream(self, what: str) -> random.Random:
        """An independent stream of random numbers. The draws of one part of the simulation do not affect the others."""
        return random.Random(f"{self.seed}/{what}")

    @property
    def elapsed_s(self) -> float:
        """Simulated seconds since the start of the run."""
        return self.loop.time() - _START

    # ---- nodes

    def node(self, name: str, config: Mapping[str, str] | None = None, *, node_id: int | None = None) -> SimNode:
        """Returns the host of that name, and creates it if necessary. The node is not started."""
        found = self.nodes.get(name)
        if found is None:
            number = len(self.nodes) + 1 if node_id is None else node_id
            found = self.nodes[name] = SimNode(self, name, number, config or {})
        return found

    async def start_broker(self, config: Mapping[str, str] | None = None, *, name: str = "b1") -> SimNode:
        """Starts a node of that name, and returns when it is ready. `config` has broker settings by Kafka's names."""
        node = self.node(name, config)
        await node.start()
        return node

    async def start_cluster(
        self,
        brokers: int = 3,
        controllers: int = 3,
        *,
        combined: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> SimCluster:
        """Starts brokers b1, b2, ... and controllers c1, c2, ..., and returns when they are ready. With `combined` the
        first brokers are the controllers."""
        cluster = SimCluster(self, ClusterLayout(brokers, controllers, combined=combined), config or {})
        await cluster.start()
        return cluster

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.address for node in self.nodes.values() if node.serves_clients)

    # ---- clients

    @asynccontextmanager
    async def producer(self, **settings: Any) -> AsyncIterator[AsyncProducer]:
        """A producer in the calling process. `settings` are those of `AsyncProducer`."""
        async with (
            self._cluster(PRODUCER_CONFIGS, settings) as cluster,
            AsyncProducer(cluster=cluster, clock=self.clock, **settings) as producer,
        ):
            yield producer

    @asynccontextmanager
    async def consumer(self, **settings: Any) -> AsyncIterator[AsyncConsumer]:
        async with (
            self._cluster(CONSUMER_CONFIGS, settings) as cluster,
            AsyncConsumer(cluster=cluster, clock=self.clock, **settings) as consumer,
        ):
            yield consumer

    @asynccontextmanager
    async def share_consumer(self, **settings: Any) -> AsyncIterator[AsyncShareConsumer]:
        on_acknowledged = settings.pop("on_acknowledged", None)
        async with (
            self._cluster(CONSUMER_CONFIGS, settings) as cluster,
            AsyncShareConsumer(cluster=cluster, on_acknowledged=on_acknowledged, **settings) as consumer,
        ):
            yield consumer

    @asynccontextmanager
    async def admin(self, **settings: Any) -> AsyncIterator[AsyncAdmin]:
        async with self._cluster(ADMIN_CONFIGS, settings) as cluster, AsyncAdmin(cluster=cluster, **settings) as admin:
            yield admin

    @asynccontextmanager
    async def _cluster(self, table: ConfigDef, settings: dict[str, Any]) -> AsyncIterator[Cluster]:
        settings.setdefault("bootstrap_servers", self.bootstrap_servers)
        for name, value in self.login.items():
            settings.setdefault(name, value)
        options = ClusterConfig.from_settings(resolve_config(table, None, settings))
        async with Cluster(options, rng=random.Random(self._client_rng.getrandbits(64))) as cluster:
            yield cluster

    def start_client(self, name: str, main: Coroutine[Any, Any, T]) -> tuple[Process, asyncio.Task[T]]:
        """Starts a program on a host of its own. The process can be partitioned, paused and killed."""
        rng = self.random_stream(f"client {name}")
        process = Process(name, name, lambda: rng.random() * 0.001)
        self.processes.append(process)
        return process, process.spawn(self.loop, main, name=name)

    def kill(self, process: Process) -> None:
        """Kills a client process, as kill -9 does."""
        if process.state is not ProcessState.DEAD:
            self.trace.event(process.name, "is killed")
            process.state = ProcessState.DEAD
            process.held.clear()
            self.network.process_died(process)

    def pause(self, process: Process) -> None:
        if process.state is ProcessState.RUNNING:
            self.trace.event(process.name, "is paused")
            process.state = ProcessState.PAUSED

    def resume(self, process: Process) -> None:
        if process.state is ProcessState.PAUSED:
            self.trace.event(process.name, "continues")
            process.state = ProcessState.RUNNING
            self.loop.release(process)

    # ---- waiting

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], within_s: float, what: str) -> None:
        """Polls `condition` until it is true. Raises LivenessError if it is not true within `within_s`."""
        deadline = self.loop.time() + within_s
        pause = 0.05
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return
            if self.loop.time() >= deadline:
                raise LivenessError(f"Within {within_s:g} s of simulated time this did not happen: {what}.")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0)

    # ---- what goes wrong

    def on_crash(self, what: str, error: BaseException | None) -> None:
        self.trace.event("crash", f"{what}: {error!r}")
        trace = "" if error is None else "".join(traceback.format_exception(error))
        self.crashes.append(f"{what}\n{trace}")

    def check_crashes(self) -> None:
        """Raises CrashError if an exception was not handled, or a traceback was logged, since the start of the run."""
        if self.crashes:
            raise CrashError("\n".join(self.crashes[:3]))

    def _on_loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        process = CURRENT.get()
        if process is not None and process.state is ProcessState.DEAD:
            return
        self.on_crash(f"asyncio: {context.get('message')}", context.get("exception"))

    def discard(self) -> None:
        """Ends the world: closes all coroutines that still wait, and suppresses their exceptions."""
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        self.loop.set_exception_handler(lambda loop, context: None)
        try:
            for process in self.processes:
                process.state = ProcessState.DEAD
            for node in self.nodes.values():
                node.disk.crash()
            for process in self.processes:
                process.discard()
            for task in sorted(asyncio.all_tasks(self.loop), key=hash):
                discard(task)
            for process in self.processes:  # a fault whose coroutine was closed may have started a node
                process.discard()
            self.loop.close()
            gc.collect()
        finally:
            sys.unraisablehook = hook


class _LogToTrace(logging.Handler):
    """Copies the log of the production code to the trace. A logged traceback counts as a crash.

    Other threads of the process, for example those of a real broker of another test, are not part of the world.
    """

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if threading.get_ident() != self._thread:
            return
        process = CURRENT.get()
        if process is not None and process.state is ProcessState.DEAD:
            return
        fields: dict[str, Any] = getattr(record, "fields", {})
        named_values = " ".join(f"{key}={value}" for key, value in fields.items())
        who = "test" if process is None else process.name
        self._world.trace.event(who, f"{record.levelname.lower()}: {record.getMessage()} {named_values}".rstrip())
        if record.exc_info and record.exc_info[1] is not None:
            self._world.on_crash(f"{who} logged an exception: {record.getMessage()}", record.exc_info[1])


def run(main: Callable[[World], Coroutine[Any, Any, T]], *, seed: int = 0, within_s: float = 10 * 365 * 86_400.0) -> T:
    """Runs `main` in the world of `seed`, and returns its result.

    Raises the exceptions of `main`, CrashError if an exception was not handled during the run, and LivenessError if
    `main` does not end within `within_s` simulated seconds. The exception's notes have the seed and the end of the
    trace.
    """
    return run_world(World(seed), main, within_s=within_s)


def run_world(world: World, main: Callable[[World], Coroutine[Any, Any, T]], *, within_s: float) -> T:
    """Like `run`, in a world that the caller keeps, for example to read its trace."""
    loop = world.loop
    loop.set_exception_handler(world._on_loop_exception)
    logger = logging.getLogger("barnabas")
    before = (logger.handlers[:], logger.propagate, logger.level)
    logger.handlers[:], logger.propagate = [_LogToTrace(world)], False
    logger.setLevel(logging.INFO)
    collected = gc.isenabled()
    gc.collect()  # frees the previous world, which its caller may have referenced until now
    frozen = gc.get_freeze_count() > 0  # by a caller that runs many worlds and collects garbage between them
    if not frozen:
        gc.freeze()  # the collection at the end of this world skips all present objects
    gc.disable()  # a replay could not repeat the moments at which a collection runs finalizers

    async def bounded() -> T:
        try:
            async with asyncio.timeout(within_s) as limit:
                result = await main(world)
        except TimeoutError:
            if limit.expired():
                raise LivenessError(f"The scenario did not end within {within_s:g} s of simulated time.") from None
            raise
        except KafkaError as error:
            if world.crashes:  # the KafkaError is a consequence of the crash
                raise CrashError("\n".join(world.crashes[:3])) from error
            raise
        world.check_crashes()
        return result

    try:
        with no_real_world(), no_endless_callback(loop):
            return loop.run_until_complete(bounded())
    except BaseException as error:  # any error is reported with the seed and the end of the trace
        error.add_note(f"--- the simulation of seed {world.seed}, up to {world.elapsed_s:.3f} s:")
        error.add_note(world.trace.tail(_LINES_SHOWN))
        raise
    finally:
        world.discard()
        if not frozen:
            gc.unfreeze()
        logger.handlers[:], logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
        if collected:
            gc.enable()
