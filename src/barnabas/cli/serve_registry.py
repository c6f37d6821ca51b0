"""Shell: `barnabas serve --registry`: runs a broker and a schema registry, which is a client of the broker, on one
event loop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barnabas.cli.output import note
from barnabas.core.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.server.node.server import Node


class EmbeddedRegistryError(BarnabasError):
    """The registry cannot run inside this broker; the message says why."""


def open_registry_warning(listener: str) -> str | None:
    """One line if other hosts can reach the registry, which has neither TLS nor authentication; None if none can."""
    host = urlsplit(listener if "://" in listener else f"http://{listener}").hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    return (
        f"WARNING: the registry at {listener} has no authentication: anyone who can connect can read, register and"
        " delete schemas. Let it listen on 127.0.0.1, behind a proxy that authenticates."
    )


async def serve_with_registry(node: Node, listener: str, announce: Callable[[Node], None]) -> None:
    """Run both until a signal. The registry stops first, because it needs the broker until it has stopped."""
    try:
        from barnabas.registry.server import RegistryServer
    except ModuleNotFoundError as error:
        raise EmbeddedRegistryError(f"--registry needs {error.name}: pip install 'barnabas[registry]'") from None
    if warning := open_registry_warning(listener):
        note(warning)
    ready = asyncio.Event()
    servers: list[RegistryServer] = []

    def on_ready(node: Node) -> None:
        announce(node)
        ready.set()

    async def run_registry() -> None:
        await ready.wait()
        try:
            server = RegistryServer({"bootstrap.servers": _plaintext_address(node)}, listener=listener)
            servers.append(server)
            await server.run(lambda server: print(f"barnabas registry ready: {server.url}", flush=True))
        finally:
            node.stop()

    def stop() -> None:
        for server in servers:
            server.stop()
        if not servers:
            node.stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with asyncio.TaskGroup() as tasks:
        registry = tasks.create_task(run_registry(), name="registry")
        await node.run(on_ready)
        registry.cancel()


def _plaintext_address(node: Node) -> str:
    """HOST:PORT of the broker's PLAINTEXT listener, to which the registry connects."""
    for endpoint in node.endpoints:
        if endpoint.security_protocol == "PLAINTEXT":
            return f"{endpoint.host}:{endpoint.port}"
    raise EmbeddedRegistryError(
        "--registry needs a PLAINTEXT listener. Run `barnabas registry --command-config FILE` beside the broker"
        " instead, with the settings of a client that is authorized to use the topic _schemas."
    )
