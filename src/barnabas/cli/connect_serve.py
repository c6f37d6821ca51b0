"""Shell: `barnabas connect serve`: one worker of a Connect cluster, with Connect's REST API."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.output import EXIT_USAGE, fail
from barnabas.cli.session import read_properties, run

if TYPE_CHECKING:
    from barnabas.spark.connectors.connect.server import ConnectServer


def connect_serve(
    worker_properties: Annotated[
        str, typer.Argument(metavar="WORKER.properties", help="The settings of the worker, with Connect's names.")
    ],
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Start although other hosts reach the REST API, and it has no login.")
    ] = False,
) -> None:
    """Run a worker of a Connect cluster, and Kafka Connect's REST API.

    Workers with the same group.id and topics share the connectors: if one dies, the others continue its connectors.
    The checkpoints are below storage.location, a directory that all workers can reach.

    Example: `barnabas connect serve worker.properties`
    """
    properties = {name: str(text) for name, text in read_properties(worker_properties).items()}
    try:
        from barnabas.core.telemetry.log import configure_logging
        from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
        from barnabas.spark.connectors.connect.server import ConnectServer
        from barnabas.spark.connectors.connect.spark_runtime import SparkConnectorRuntime
        from barnabas.spark.connectors.connect.worker_config import parse_worker_config
    except ModuleNotFoundError as error:
        fail(f"Connect needs {error.name}: pip install 'barnabas[connectors]'", EXIT_USAGE)
    configure_logging()
    config = parse_worker_config(properties)

    async def main() -> None:
        planner = WorkerPlanner(config.client, config.converters, config.file_directories)
        runtime = SparkConnectorRuntime(config, planner)
        server = ConnectServer(config, runtime, insecure=insecure)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        await server.run(_announce)

    with contextlib.suppress(KeyboardInterrupt):
        run(main)


def _announce(server: ConnectServer) -> None:
    """Print one line on stdout when the worker is ready, for people and for programs that wait for the line."""
    print(f"barnabas connect ready: {server.url}  connectors={server.connectors}", flush=True)
