"""Shell: `barnabas connect`: connectors as configuration, as with Kafka Connect.

`serve` runs one worker of a Connect cluster, with Connect's REST API; `standalone` runs the connectors of some files in
one process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import noun
from barnabas.cli.output import EXIT_USAGE, fail
from barnabas.cli.session import read_properties, run

if TYPE_CHECKING:
    from barnabas.spark.connectors.connect.server import ConnectServer
    from barnabas.spark.connectors.connect.standalone import StandaloneWorker

app = noun("Connectors: Kafka Connect's configurations and REST API, on Spark.")


@app.command("serve")
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
        runtime = SparkConnectorRuntime(config, planner, guards_files=True)
        server = ConnectServer(config, runtime, insecure=insecure)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.stop)
        await server.run(_announce_server)

    with contextlib.suppress(KeyboardInterrupt):
        run(main)


def _announce_server(server: ConnectServer) -> None:
    """Print one line on stdout when the worker is ready, for people and for programs that wait for the line."""
    print(f"barnabas connect ready: {server.url}  connectors={server.connectors}", flush=True)


@app.command("standalone")
def connect_standalone(
    worker_properties: Annotated[
        str, typer.Argument(metavar="WORKER.properties", help="The settings of the worker, with Connect's names.")
    ],
    connectors: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="A connector each: a properties file, or JSON.")
    ],
) -> None:
    """Run the connectors of some files until the process is stopped.

    The process can be killed at any moment: started again with the same command, it continues where it was. The
    checkpoints are beside offset.storage.file.filename, or below storage.location.

    Example: `barnabas connect standalone worker.properties orders.properties lake.json`
    """
    properties = {name: str(text) for name, text in read_properties(worker_properties).items()}
    try:
        from barnabas.core.telemetry.log import configure_logging
        from barnabas.spark.connectors.connect.connector_files import parse_connector_file, parse_standalone_config
        from barnabas.spark.connectors.connect.plans.planner import WorkerPlanner
        from barnabas.spark.connectors.connect.spark_runtime import SparkConnectorRuntime
        from barnabas.spark.connectors.connect.standalone import StandaloneWorker
    except ModuleNotFoundError as error:
        fail(f"Connect needs {error.name}: pip install 'barnabas[connectors]'", EXIT_USAGE)
    configure_logging()

    async def main() -> None:
        config = parse_standalone_config(properties)
        files = [parse_connector_file(_read(path), path) for path in connectors]
        runtime = SparkConnectorRuntime(config, WorkerPlanner(config.client, config.converters))
        worker = StandaloneWorker(config.storage_location, runtime, files)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, worker.stop)
        await worker.run(_announce_worker)

    with contextlib.suppress(KeyboardInterrupt):
        run(main)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        fail(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", EXIT_USAGE)


def _announce_worker(worker: StandaloneWorker) -> None:
    """Print one line on stdout when the connectors are started, for people and for programs that wait for the line."""
    print(f"barnabas connect ready: {len(worker.states)} connectors: {', '.join(worker.states)}", flush=True)
