"""Shell: `barnabas cluster up`: runs a cluster of several processes on this machine until Ctrl-C."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, fail, note, print_table
from barnabas.cli.serve.serve import USERS_VARIABLE

if TYPE_CHECKING:
    from barnabas.testing.process_cluster import ClusterProcess

_POLL_INTERVAL_S: Final = 0.5
PORT_MAX: Final = 55_000
_REPLICATION_FACTOR_MAX: Final = 3
_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "mirror.state.topic.replication.factor",
)
Controllers = Annotated[
    int,
    typer.Option(
        "--controllers",
        min=0,
        max=9,
        help="The number of dedicated controllers; 0: the first three brokers (of two, one) are controllers too.",
    ),
]
_IN_SYNC: Final = (
    "min.insync.replicas",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.min.isr",
    "mirror.state.topic.min.isr",
)


def up(
    context: typer.Context,
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=100, help="The number of brokers.")] = 3,
    controllers: Controllers = 0,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="DIR",
            help="The directory in which each node gets a data directory, or a folder of `barnabas cluster init`.",
        ),
    ] = Path("data-cluster"),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=PORT_MAX,
            help=(
                "The first broker's port; other brokers use the next ports, controllers 10,000 above. 0: any free port."
            ),
        ),
    ] = 9092,
    processes: Annotated[
        int,
        typer.Option(
            "--processes",
            min=1,
            max=64,
            help="The number of processes that each broker runs (serve --processes); replicas are spread over brokers.",
        ),
    ] = 1,
    settings: Annotated[
        list[str] | None, typer.Option("-c", metavar="KEY=VALUE", help="A setting for every node; may be repeated.")
    ] = None,
) -> None:
    """Run a cluster on this machine for development. Each node is a process and has its own data directory.

    Ctrl-C stops the cluster cleanly; the same command starts it again with the same data. If a node dies, a message
    says so and shows the command that starts it again; until then you can watch how the cluster works without it.

    Unless configured otherwise, topics have three replicas, and acks=all needs two of them in sync (fewer if there are
    fewer brokers), so that any one broker may die. Kafka's own default is -c default.replication.factor=1.

    A folder that `barnabas cluster init` has made says itself how many nodes there are, and at which ports.

    Example: `barnabas cluster up --brokers 3`
    """
    from barnabas.testing.process_cluster import ClusterProcess, node_files

    if node_files(data_dir):
        _refuse_given(context, "brokers", "controllers", "port", "processes")
        _run(_configured(data_dir.absolute(), settings or []))
        return
    if controllers % 2 == 0 and controllers:
        note(f"note: {controllers} controllers tolerate no more failures than {controllers - 1}; odd numbers are usual")
    cluster = ClusterProcess(
        data_dir.absolute(),
        brokers=brokers,
        controllers=controllers,
        port=port,
        settings=[*replication_settings(brokers), *(settings or [])],
        death_signal=signal.SIGTERM,  # if this process is killed, the nodes stop in order
        processes=processes,
    )
    _run(cluster)


def _run(cluster: ClusterProcess) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):  # the nodes run in sessions of their own and would keep running
        signal.signal(number, _interrupt)
    note(f"starting {len(cluster.nodes)} nodes ...")
    began = time.monotonic()
    try:
        cluster.start()
    except (RuntimeError, OSError) as error:
        cluster.kill_all()
        fail(str(error), EXIT_FAILED)
    except KeyboardInterrupt:
        cluster.kill_all()
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _show(cluster, time.monotonic() - began)
    _watch(cluster)


def replication_settings(brokers: int) -> list[str]:
    """Replication settings with which a cluster of so many brokers loses no data when any one broker dies.

    Kafka's defaults do not fit here: one replica for a user's topic, which is lost with its broker, and three for an
    internal topic, which a cluster of one or two brokers cannot create.
    """
    replication_factor = min(brokers, _REPLICATION_FACTOR_MAX)
    in_sync = max(replication_factor - 1, 1)
    return [*(f"{name}={replication_factor}" for name in _FACTORS), *(f"{name}={in_sync}" for name in _IN_SYNC)]


def _refuse_given(context: typer.Context, *names: str) -> None:
    """Exit if one of the options is on the command line: the files of the folder say what they would say."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            fail(f"--{name}: the folder is one of `barnabas cluster init`, whose files say this already", EXIT_USAGE)


def _configured(folder: Path, settings: list[str]) -> ClusterProcess:
    """The cluster that the files of the folder describe. A new cluster gets the users of its file first-users."""
    from barnabas.testing.process_cluster import ConfiguredCluster

    try:
        cluster = ConfiguredCluster(folder, settings=settings, death_signal=signal.SIGTERM)
        if USERS_VARIABLE not in os.environ and (folder / "first-users").exists():
            os.environ[USERS_VARIABLE] = (folder / "first-users").read_text(encoding="utf-8")
    except (OSError, ValueError, KeyError) as error:
        fail(f"{folder} cannot be read as a folder of `barnabas cluster init`: {error!r}", EXIT_USAGE)
    return cluster


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt for SIGTERM and SIGHUP, so that they end the cluster as Ctrl-C does."""
    raise KeyboardInterrupt


def _show(cluster: ClusterProcess, seconds: float) -> None:
    rows = [
        (
            _ids(cluster, node_id),
            _roles(cluster, node_id),
            node.bootstrap_servers,
            _pid(cluster, node_id),
            str(node.data_dir),
        )
        for node_id, node in sorted(cluster.nodes.items())
    ]
    print_table(["NODE>", "ROLES", "ADDRESS", "PID>", "DATA"], rows)
    print(f"barnabas cluster ready: {cluster.bootstrap_servers}  (started in {seconds:.1f} s)", flush=True)
    client = cluster.folder / "client.properties"
    how = f"--command-config {client}" if client.exists() else f"-b {cluster.bootstrap_servers}"
    note(f"Ctrl-C stops the cluster. Describe it with: barnabas cluster describe {how}")


def _watch(cluster: ClusterProcess) -> None:
    """Report nodes that end until Ctrl-C, SIGTERM or SIGHUP; then shut down cleanly the nodes that still run."""
    dead: set[int] = set()
    try:
        while len(dead) < len(cluster.nodes):
            time.sleep(_POLL_INTERVAL_S)
            for node_id, node in cluster.nodes.items():
                if node_id not in dead and not node.alive:
                    dead.add(node_id)
                    note(f"node {node_id} has exited; its log is {node.log_path}. Start it again with:")
                    note("  " + shlex.join(node.command()))
        fail("All nodes have exited.", EXIT_FAILED)
    except KeyboardInterrupt:
        note("stopping the nodes; press Ctrl-C again to kill them ...")
        try:
            cluster.stop()
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            note("killed: the next start recovers the logs")
        finally:
            cluster.kill_all()


def _ids(cluster: ClusterProcess, node_id: int) -> str:
    """The node id, or the ids of all processes of the broker: `4-6`."""
    last = node_id + cluster.processes - 1 if node_id in cluster.broker_ids else node_id
    return str(node_id) if last == node_id else f"{node_id}-{last}"


def _roles(cluster: ClusterProcess, node_id: int) -> str:
    known = (("broker", cluster.broker_ids), ("controller", cluster.controller_ids))
    return ",".join(role for role, ids in known if node_id in ids)


def _pid(cluster: ClusterProcess, node_id: int) -> str:
    """The process id as `kill` expects it, without thousands separators."""
    process = cluster.node(node_id).process
    return "-" if process is None else str(process.pid)
