"""Shell: `barnabas registry`: runs a schema registry as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import CommandConfig
from barnabas.cli.output import EXIT_USAGE, fail, note
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run, with_bootstrap

BootstrapOfRegistry = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar="BARNABAS_BOOTSTRAP",
        help="The brokers to connect to first, HOST:PORT[,HOST:PORT]. Default: the context's, or 127.0.0.1:9092.",
        metavar="HOST:PORT",
    ),
]
DEFAULT_LISTENER = "http://127.0.0.1:8081"

if TYPE_CHECKING:
    from barnabas.registry.server import RegistryServer


def registry(
    bootstrap_server: BootstrapOfRegistry = None,
    listener: Annotated[
        str | None,
        typer.Option(
            "--listener",
            "-l",
            metavar="URL",
            help="The address to which clients connect; port 0 takes any free port. Default: http://127.0.0.1:8081.",
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="The compacted topic that stores the schemas. Default: _schemas.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config", metavar="FILE", help="A schema-registry.properties file, as for Confluent's registry."
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Refuse every change: the topic is a mirror of another cluster's."),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Start although other hosts reach the registry, and it has no login.")
    ] = False,
    command_config: CommandConfig = None,
) -> None:
    """Run a schema registry: Confluent's REST API on any Kafka cluster.

    The registry stores its state in a topic, so it can be stopped, moved to another host, and run in several processes.
    `barnabas serve --registry` runs a registry inside the broker.

    TLS and users are settings of the file: `ssl.keystore.location`, `authentication.method=BASIC`.

    Example: `barnabas registry --bootstrap-server localhost:9092 --listener http://127.0.0.1:8081`
    """
    from barnabas.core.config import ConfigError
    from barnabas.registry.registry_file import read_registry_file

    given = {name: str(value) for name, value in read_properties(config).items()}
    try:
        own = read_registry_file(given)
    except ConfigError as error:
        fail(f"{config}: {error}", EXIT_USAGE)
    for name in own.ignored:
        note(f"note: {name} is not a setting of this registry and is ignored")
    url = listener or own.listener or DEFAULT_LISTENER
    bootstrap = bootstrap_server or own.client.get("bootstrap.servers") or DEFAULT_BOOTSTRAP
    settings = with_bootstrap(bootstrap, {**own.client, **read_properties(command_config)})

    async def main() -> None:
        server = _import_server()(
            settings,
            listener=url,
            topic=topic or own.topic or "_schemas",
            configs=own.configs,
            read_only=read_only or own.read_only,
            insecure=insecure,
        )
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
