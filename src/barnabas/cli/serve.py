"""Shell: `barnabas serve`: one node, broker and controller, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

from pathlib import Path  # noqa: E402 - the clock starts before the imports do: they are part of the start
from typing import TYPE_CHECKING, Annotated  # noqa: E402

import typer  # noqa: E402

from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note  # noqa: E402

if TYPE_CHECKING:
    from barnabas.node.config import NodeConfig
    from barnabas.node.server import Node


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            envvar="BARNABAS_DATA_DIR",
            metavar="DIR",
            help="Where everything is kept; made if it does not exist. A directory of Apache Kafka (KRaft) opens too.",
        ),
    ] = None,
    listener: Annotated[
        str | None,
        typer.Option(
            "--listener",
            "-l",
            metavar="NAME://HOST:PORT",
            help="Where clients connect. Port 0 takes any free port. Default: PLAINTEXT://127.0.0.1:9092",
        ),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="A server.properties file, as for Apache Kafka.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("-c", metavar="KEY=VALUE", help="One broker setting; beats the file. May be repeated."),
    ] = None,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", help="The id of a new cluster. Default: a random one.")
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "warning",
    log_json: Annotated[bool, typer.Option("--log-json", help="Log one JSON object per line.")] = False,
) -> None:
    """Run a broker. No format step, no cluster to set up first.

    Example: `barnabas serve --data-dir ./data` and point any Kafka client at `127.0.0.1:9092`.

    When it is ready, one line on stdout says where:
    `barnabas ready: PLAINTEXT://127.0.0.1:9092  cluster=... node=1 data=... (started in 300 ms)`.
    SIGTERM and Ctrl-C shut it down cleanly; after `kill -9` it recovers at the next start.

    Settings have Kafka's names and defaults, except that internal topics get one replica on a single broker.
    Exit codes: 0 clean shutdown, 1 could not start or failed, 2 wrong usage or configuration.
    """
    from barnabas.core.errors import BarnabasError
    from barnabas.node.config import build_config, parse_assignments, read_properties_file, unknown_names
    from barnabas.telemetry.log import configure_logging

    configure_logging(log_level, as_json=log_json)
    try:
        given = read_properties_file(config) if config is not None else {}
        given.update(parse_assignments(settings or []))
        node_config = build_config(given, data_dir=data_dir, listener=listener)
    except (BarnabasError, ValueError) as error:
        fail(str(error), EXIT_USAGE)
    for name in unknown_names(given):
        note(f"note: {name} is not a setting this broker knows; it is ignored")
    _run(node_config, cluster_id)


def _run(config: NodeConfig, cluster_id: str | None) -> None:
    import asyncio
    import signal

    import uvloop

    from barnabas.core.errors import BarnabasError
    from barnabas.node.server import Node

    async def main() -> None:
        node = Node(config, cluster_id=cluster_id)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, node.stop)
        await node.run(_announce)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    except BarnabasError as error:
        fail(str(error), EXIT_FAILED)
    except ExceptionGroup as group:
        known = group.subgroup(BarnabasError)
        if known is None:
            raise
        fail("; ".join(_sentences(known)), EXIT_FAILED)
    except OSError as error:
        fail(_explain(error, config), EXIT_FAILED)


def _sentences(group: BaseExceptionGroup[BaseException]) -> list[str]:
    return [
        sentence
        for error in group.exceptions
        for sentence in (_sentences(error) if isinstance(error, BaseExceptionGroup) else [str(error)])
    ]


def _announce(node: Node) -> None:
    where = ",".join(str(endpoint) for endpoint in node.endpoints)
    took_ms = round((time.perf_counter() - _STARTED) * 1000)
    directories = ",".join(str(Path(path)) for path in node.config.log_dirs)
    print(
        f"barnabas ready: {where}  cluster={node.identity.cluster_id} node={node.identity.node_id} "
        f"data={directories} (started in {took_ms} ms)",
        flush=True,
    )


def _explain(error: OSError, config: NodeConfig) -> str:
    import errno

    where = ", ".join(str(endpoint) for endpoint in config.listeners)
    if error.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use. Stop what listens there, or choose another with --listener (port 0: any)."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this host does not have that address. Choose another with --listener."
    if error.errno == errno.EACCES:
        return f"{where}: not allowed to listen there. Ports below 1024 need privileges."
    return f"{where}: {error.strerror or error}"
