"""Shell: `barnabas serve --registry --console`: runs a broker and services that are its clients, in one process.

The services have an event loop of their own in a thread of their own: parsing and comparing the schemas that clients
send takes up to seconds, for which the clients of the broker must not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

import uvloop

from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.server.node.server import Node


_OF_REGISTRY: Final = "schema.registry."
"""The settings of a registry in the process of a broker begin with this in server.properties."""


class EmbeddedServiceError(BarnabasError):
    """A registry or console cannot run inside this broker; the message says why."""


class Service(Protocol):
    """What runs beside the broker. `run` serves until `stop`, and calls its argument when clients may connect."""

    @property
    def url(self) -> str: ...

    def stop(self) -> None: ...

    def run(self, on_ready: Callable[[Any], None]) -> Awaitable[None]: ...


ServiceBuilder = tuple[str, Callable[[str, Mapping[str, str]], Service]]
"""(the service's name, a function that builds it from the broker's address HOST:PORT and the URLs of the services that
run already, by name)"""


def registry_builder(listener: str, given: Mapping[str, str], *, insecure: bool = False) -> ServiceBuilder:
    """A schema registry, with the settings of the broker that begin with `schema.registry.`. Raises
    EmbeddedServiceError without the extra `registry`."""
    try:
        from barnabas.registry.registry_file import read_registry_file
        from barnabas.registry.server import RegistryServer
    except ModuleNotFoundError as error:
        raise EmbeddedServiceError(f"--registry needs {error.name}: pip install 'barnabas[registry]'") from None
    own = {name.removeprefix(_OF_REGISTRY): text for name, text in given.items() if name.startswith(_OF_REGISTRY)}
    file = read_registry_file(own)

    def build(address: str, _: Mapping[str, str]) -> RegistryServer:
        client = {"bootstrap.servers": address, **file.client}
        topic = {} if file.topic is None else {"topic": file.topic}
        return RegistryServer(
            client,
            listener=listener,
            configs=given,
            prefix=_OF_REGISTRY,
            read_only=file.read_only,
            insecure=insecure,
            **topic,
        )

    return "registry", build


def console_builder(listener: str) -> ServiceBuilder:
    """A console, on a loopback address only: its other options belong to `barnabas console`. Raises
    EmbeddedServiceError without the extra `console`.
    """
    try:
        from barnabas.console.server import ConsoleServer
        from barnabas.console.settings import ConsoleSettings
    except ModuleNotFoundError as error:
        raise EmbeddedServiceError(f"--console needs {error.name}: pip install 'barnabas[console]'") from None

    def build(address: str, urls: Mapping[str, str]) -> ConsoleServer:
        settings = ConsoleSettings({"bootstrap.servers": address}, listener=listener, registry_url=urls.get("registry"))
        return ConsoleServer(settings)

    return "console", build


async def serve_beside(node: Node, announce: Callable[[Node], None], builders: Sequence[ServiceBuilder]) -> None:
    """Run all until a signal. The services stop first, because they need the broker until they have stopped."""
    ready = asyncio.Event()
    services = _ServiceThread(builders)

    def on_ready(node: Node) -> None:
        announce(node)
        ready.set()

    async def run_services() -> None:
        await ready.wait()
        try:
            await services.run(_plaintext_address(node))
        finally:
            node.stop()

    def stop() -> None:
        if not services.stop():
            node.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(run_services(), name="services")
        await node.run(on_ready)
        serving.cancel()


class _ServiceThread:
    """The services, on an event loop in a thread."""

    def __init__(self, builders: Sequence[ServiceBuilder]) -> None:
        self._builders = builders
        self._running: list[Service] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None

    async def run(self, address: str) -> None:
        """Start the thread, and return when all services have ended. Raises what they raise. A cancellation cancels
        the services, and ends when they have ended.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="barnabas-services") as thread:
            ended = asyncio.get_running_loop().run_in_executor(thread, self._run, address)
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                self._call(self._cancel)
                await asyncio.wait((ended,))
                raise

    def stop(self) -> bool:
        """Stop the services, the last one first. Returns False if none has been started."""
        if not self._running:
            return False
        for service in reversed(self._running):
            self._call(service.stop)
        return True

    def _call(self, function: Callable[[], object]) -> None:
        """Call the function on the loop of the services, unless they have ended."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(function)

    def _cancel(self) -> None:
        assert self._main is not None
        self._main.cancel()

    def _run(self, address: str) -> None:
        """In the thread: run the services."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            self._loop = runner.get_loop()
            with contextlib.suppress(asyncio.CancelledError):  # the broker has ended, and says why
                runner.run(self._serve(address))

    async def _serve(self, address: str) -> None:
        self._main = asyncio.current_task()
        urls: dict[str, str] = {}
        async with asyncio.TaskGroup() as tasks:
            for name, build in self._builders:
                service = build(address, urls)
                self._running.append(service)
                await _started(tasks, name, service)
                urls[name] = service.url


async def _started(tasks: asyncio.TaskGroup, name: str, service: Service) -> None:
    """Start a service, and wait until clients may connect or the service has ended."""
    is_ready = asyncio.get_running_loop().create_future()

    def on_ready(service: Service) -> None:
        print(f"barnabas {name} ready: {service.url}", flush=True)
        is_ready.set_result(None)

    async def run() -> None:
        await service.run(on_ready)

    await asyncio.wait((tasks.create_task(run(), name=name), is_ready), return_when=asyncio.FIRST_COMPLETED)


def _plaintext_address(node: Node) -> str:
    """HOST:PORT of the broker's PLAINTEXT listener, to which the services connect."""
    for endpoint in node.endpoints:
        if endpoint.security_protocol == "PLAINTEXT":
            return f"{endpoint.host}:{endpoint.port}"
    raise EmbeddedServiceError(
        "--registry and --console need a PLAINTEXT listener. Run `barnabas registry --command-config FILE` and"
        " `barnabas console --command-config FILE` beside the broker instead, with the settings of a client that is"
        " authorized."
    )
