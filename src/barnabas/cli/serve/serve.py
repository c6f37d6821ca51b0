"""Shell: `barnabas serve`: runs one node, broker and controller, until SIGTERM or Ctrl-C.

`serve` is the only noun that is not a typer command. A broker should be ready within a fifth of a second, and importing
typer would take a quarter of that time. Therefore argparse parses its options, and `app.py` only lists it in `barnabas
--help`.
"""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

import gc  # noqa: E402 - the clock starts before the imports, so that start-up time includes them
import os  # noqa: E402
import sys  # noqa: E402
from argparse import ArgumentParser, HelpFormatter, Namespace, RawDescriptionHelpFormatter  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from typing import TYPE_CHECKING, Final, NoReturn  # noqa: E402

from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, note  # noqa: E402

if TYPE_CHECKING:
    from barnabas.server.node.config import NodeConfig
    from barnabas.server.node.server import Node

SUMMARY: Final = "Run a broker. No format step, no cluster to set up first."
HELP: Final = f"""{SUMMARY}

Example: `barnabas serve --data-dir ./data`, and any Kafka client connects to 127.0.0.1:9092.

When the broker is ready, it prints its listeners on stdout. SIGTERM and Ctrl-C shut it down cleanly; after `kill -9`
the next start recovers its logs. Settings have Kafka's names and defaults, except that internal topics get one replica
on a single broker. Exit codes: 0 clean shutdown, 1 could not start or failed, 2 wrong usage or configuration.
"""
"""The text of `--help`, which Typer prints in the style of the other commands."""
_DESCRIPTION: Final = f"""{SUMMARY}

  barnabas serve --data-dir ./data        and point any Kafka client at 127.0.0.1:9092

When the broker is ready, it prints its listeners on stdout:

  barnabas ready: PLAINTEXT://127.0.0.1:9092  cluster=... node=1 data=... (started in 200 ms)

SIGTERM and Ctrl-C shut the broker down cleanly; after `kill -9` the next start recovers its logs.
"""
_EPILOG: Final = """\
Settings have Kafka's names and defaults, except that internal topics get one replica on a single broker.
Exit codes: 0 clean shutdown, 1 could not start or failed, 2 wrong usage or configuration.
"""
USERS_VARIABLE: Final = "BARNABAS_ADD_SCRAM"
"""The environment variable with the users that a new cluster has from its start, one in each line."""
_LOG_LEVELS: Final = ("trace", "debug", "info", "warning", "error")
_MIB: Final = 1024 * 1024
_GC_THRESHOLDS: Final = (10_000, 20, 20)
_SWITCH_S: Final = 0.001
"""While a thread encodes a large response, each callback of the event loop waits for the interpreter for so long."""
_FEW_DESCRIPTORS: Final = 1024
"""Below this limit, clients may be refused earlier than their users expect."""


def build_parser() -> ArgumentParser:
    """The parser for the options of `barnabas serve`."""
    parser = ArgumentParser(
        "barnabas serve",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=_format_help,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-d",
        "--data-dir",
        metavar="DIR",
        default=os.environ.get("BARNABAS_DATA_DIR"),
        help="the data directory; created if it does not exist; a directory of Apache Kafka (KRaft) works too "
        "[env: BARNABAS_DATA_DIR]",
    )
    parser.add_argument(
        "-l",
        "--listener",
        metavar="NAME://HOST:PORT",
        help="the address to which clients connect; port 0 takes any free port [default: PLAINTEXT://127.0.0.1:9092]",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file, as for Apache Kafka")
    parser.add_argument(
        "--env",
        action="store_true",
        help="take settings from environment variables, as Kafka's images do: KAFKA_NODE_ID=1 is node.id=1; and the "
        "cluster id from CLUSTER_ID; they override the file",
    )
    parser.add_argument(
        "-c",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one broker setting; overrides the file and the environment; may be repeated",
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        nargs="?",
        const="http://127.0.0.1:8081",
        help="run a schema registry in this process too [without a URL: http://127.0.0.1:8081]",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let --registry listen on an address that other hosts reach, without a login",
    )
    parser.add_argument(
        "--console",
        metavar="URL",
        nargs="?",
        const="http://127.0.0.1:8090",
        help="serve the web console in this process too, on a loopback address [without a URL: http://127.0.0.1:8090]",
    )
    parser.add_argument(
        "--metrics",
        metavar="URL",
        help="serve metrics for Prometheus, /livez, /readyz and /version at this URL: "
        "http://127.0.0.1:9404/metrics [default: off]",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=int,
        help="run N brokers, which share the cores of this host, under one supervisor; they use consecutive ports and "
        "directories node-ID in the data directory [default: one broker, without a supervisor]",
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        metavar="SCRAM",
        help="a user that a new cluster has from its start: SCRAM-SHA-512=[name=admin,password=secret]; may be "
        "repeated; without effect in an existing cluster [env: BARNABAS_ADD_SCRAM, one user in each line]",
    )
    parser.add_argument("--cluster-id", metavar="ID", help="the id of a new cluster [default: a random one]")
    parser.add_argument(
        "--log-level", choices=_LOG_LEVELS, default="info", metavar="LEVEL",
        help=", ".join(_LOG_LEVELS) + " [default: info]",
    )  # fmt: skip
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", metavar="FORMAT",
        help="text, or json: one JSON object per line [default: text]",
    )  # fmt: skip
    parser.add_argument(
        "--log-json", dest="log_format", action="store_const", const="json", help="the same as --log-format json"
    )
    parser.add_argument("--log-file", metavar="FILE", help="write the log to FILE, with rotation [default: stderr]")
    parser.add_argument(
        "--log-file-mib", metavar="N", type=int, default=100,
        help="rotate FILE when it has N MiB; 0 never rotates, for logrotate with copytruncate [default: 100]",
    )  # fmt: skip
    parser.add_argument(
        "--log-files", metavar="N", type=int, default=10, help="keep N files that were rotated [default: 10]"
    )
    return parser


def _format_help(prog: str) -> HelpFormatter:
    """Create the help formatter with a width. Without one, argparse imports shutil (and bz2, lzma) for every option."""
    try:
        columns = os.get_terminal_size().columns
    except OSError:  # not a terminal
        columns = 80
    return RawDescriptionHelpFormatter(prog, width=columns - 2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C. `arguments` are those after `serve`; None reads them from the command line."""
    options = build_parser().parse_args(arguments)
    gc.disable()  # almost nothing that a start allocates is garbage; `_settle_memory` enables collection again
    sys.setswitchinterval(_SWITCH_S)

    from barnabas.core.errors import BarnabasError
    from barnabas.core.telemetry.log import LogFile, configure_logging
    from barnabas.server.node.config import build_config, parse_assignments, read_properties_file, unknown_names
    from barnabas.server.node.setup.listeners import open_listeners

    file = None
    if options.log_file is not None and options.processes is None:
        file = LogFile(options.log_file, options.log_file_mib * _MIB, options.log_files)
    try:
        configure_logging(options.log_level, as_json=options.log_format == "json", file=file)
    except OSError as error:
        fail(f"--log-file {options.log_file}: {error.strerror or error}", EXIT_USAGE)
    try:
        given = read_properties_file(options.config) if options.config is not None else {}
        if options.env:
            given.update(_read_environment(options))
        given.update(parse_assignments(options.settings))
        if options.processes is not None:
            if options.add_scram:
                os.environ[USERS_VARIABLE] = "\n".join(options.add_scram)
            _run_processes(options, given)
        users = options.add_scram or os.environ.get(USERS_VARIABLE, "").splitlines()
        node_config = build_config(
            given, data_dir=options.data_dir, listener=options.listener, first_users=[user for user in users if user]
        )
    except (BarnabasError, ValueError) as error:
        fail(str(error), EXIT_USAGE)
    _raise_descriptor_limit()
    for name in unknown_names(given):
        note(f"note: {name} is not a known broker setting and is ignored")
    if found := open_listeners(node_config):
        note(
            f"WARNING: {', '.join(map(str, found))} has no authentication: anyone who can connect can read, change and"
            " delete all data. docs/SECURITY.md says how to protect it."
        )
    _run(node_config, options)


def _read_environment(options: Namespace) -> dict[str, str]:
    """The settings of the environment. The cluster id of the environment counts unless `--cluster-id` is given. Raises
    ValueError."""
    from barnabas.server.node.setup.environment import CLUSTER_ID, settings_from_environment

    options.cluster_id = options.cluster_id or os.environ.get(CLUSTER_ID) or None
    return settings_from_environment(os.environ)


def _run_processes(options: Namespace, given: Mapping[str, str]) -> NoReturn:
    """Run several brokers, and exit with the code of their supervisor. Raises ConfigError."""
    from barnabas.cli.serve.processes import plan_processes, run_processes

    raise SystemExit(run_processes(options, plan_processes(options, given)))


def _raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit, and log it. A low limit is a warning."""
    from barnabas.core.telemetry import get_logger
    from barnabas.server.storage.descriptors import divide_descriptors, raise_descriptor_limit

    before, limit = raise_descriptor_limit()
    shares = divide_descriptors(limit)
    log = get_logger("barnabas.cli")
    emit = log.warning if limit < _FEW_DESCRIPTORS else log.info
    emit(
        "limit of open files",
        soft_limit=limit,
        raised_from=before,
        for_connections=shares.connections,
        for_log_segments=shares.segments,
    )


def _run(config: NodeConfig, options: Namespace) -> None:
    import asyncio
    import signal

    import uvloop

    from barnabas.core.errors import BarnabasError
    from barnabas.server.node.server import Node

    async def main() -> None:
        node = Node(config, cluster_id=options.cluster_id, metrics_url=options.metrics)
        if options.registry is not None or options.console is not None:
            from barnabas.cli.serve.beside import console_builder, registry_builder, serve_beside

            builders = []
            if options.registry is not None:
                builders.append(registry_builder(options.registry, config.given, insecure=options.insecure))
            if options.console is not None:
                builders.append(console_builder(options.console))
            await serve_beside(node, _announce, builders)
            return
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
    _settle_memory()
    where = ",".join(str(endpoint) for endpoint in node.endpoints)
    took_ms = round((time.perf_counter() - _STARTED) * 1000)
    directories = ",".join(os.path.normpath(path) for path in node.config.log_dirs)
    print(
        f"barnabas ready: {where}  cluster={node.identity.cluster_id} node={node.identity.node_id} "
        f"data={directories}{'' if node.pages is None else f' metrics={node.pages.url}'} (started in {took_ms} ms)",
        flush=True,
    )


def _settle_memory() -> None:
    """Enable garbage collection again, and exclude the objects of the start from it (`gc.freeze`).

    Requests create no reference cycles, so a collection finds nothing, and its cost is proportional to the number of
    objects that it visits. Frozen objects (the modules and the first metadata image, some 40,000 objects; 7 ms for a
    full collection) are not visited. The threshold of the first generation is raised, so that collections are rare; one
    takes 0.2 ms at most.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def _explain(error: OSError, config: NodeConfig) -> str:
    import errno

    where = ", ".join(str(endpoint) for endpoint in config.listeners)
    if error.errno == errno.EADDRINUSE:
        return (
            f"{where}: the port is in use. Stop the process that uses it, or choose another "
            f"port with --listener (port 0: any)."
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{where}: this host does not have that address. Choose another with --listener."
    if error.errno == errno.EACCES:
        return f"{where}: permission denied. Ports below 1024 need privileges."
    return f"{where}: {error.strerror or error}"
