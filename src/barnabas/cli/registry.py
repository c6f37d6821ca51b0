"""Shell: `barnabas registry`: runs a schema registry as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import Bootstrap, CommandConfig
from barnabas.cli.output import EXIT_USAGE, fail, note
from barnabas.cli.serve_beside import open_registry_warning
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run, with_bootstrap

if TYPE_CHECKING:
    from barnabas.registry.server import RegistryServer


def registry(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    listener: Annotated[
        str,
        typer.Option(
            "--listener", "-l", metavar="URL", help="The address to which clients connect; port 0 takes any free port."
        ),
    ] = "http://127.0.0.1:8081",
    topic: Annotated[str, typer.Option("--topic", help="The compacted topic that stores the schemas.")] = "_schemas",
    command_config: CommandConfig = None,
) -> None:
    """Run a schema registry: Confluent's REST API on any Kafka cluster.

    The registry stores its state in a topic, so it can be stopped, moved to another host, and run in several processes.
    `barnabas serve --registry` runs a registry inside the broker.

    Example: `barnabas registry --bootstrap-server localhost:9092 --listener http://127.0.0.1:8081`
    """
    if warning := open_registry_warning(listener):
        note(warning)
    settings = with_bootstrap(bootstrap_server, read_properties(command_config))

    async def main() -> None:
        server = _import_server()(settings, listener=listener, topic=topic)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        await server.run(announce)

    with contextlib.suppress(KeyboardInterrupt):
        run(main)


def announce(server: RegistryServer) -> None:
    """Print one line on stdout when the registry is ready, for people and for programs that wait for the line."""
    state = server.registry.state
    print(f"barnabas registry ready: {server.url}  subjects={len(state.subjects)}", flush=True)


def _import_server() -> type[RegistryServer]:
    try:
        from barnabas.registry.server import RegistryServer
    except ModuleNotFoundError as error:
        fail(f"The schema registry needs {error.name}: pip install 'barnabas[registry]'", EXIT_USAGE)
    return RegistryServer
