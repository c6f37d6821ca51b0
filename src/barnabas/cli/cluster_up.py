"""Shell: `barnabas cluster up`: a real cluster of several processes on this machine, until Ctrl-C."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, fail, note, print_table

if TYPE_CHECKING:
    from barnabas.testing.process_cluster import ClusterProcess

_LOOK_S: Final = 0.5
_PORT_MAX: Final = 55_000
_COPIES_MAX: Final = 3
_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
_IN_SYNC: Final = ("min.insync.replicas", "transaction.state.log.min.isr", "share.coordinator.state.topic.min.isr")


def up(
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=100, help="How many brokers.")] = 3,
    controllers: Annotated[
        int,
        typer.Option(
            "--controllers",
            min=0,
            max=9,
            help="Controllers of their own; 0: the first three brokers are (of two, one).",
        ),
    ] = 0,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", "-d", metavar="DIR", help="A folder for each node is made in it.")
    ] = Path("data-cluster"),
    port: Annotated[
        int,
        typer.Option(
            "--port",
            min=0,
            max=_PORT_MAX,
            help="The first broker's port; the others follow, controllers listen 10,000 above. 0: any that are free.",
        ),
    ] = 9092,
    settings: Annotated[
        list[str] | None, typer.Option("-c", metavar="KEY=VALUE", help="A setting for every node; may be repeated.")
    ] = None,
) -> None:
    """Run a cluster on this machine for development: each node a process, with its data in a folder of its own.

    Ctrl-C stops it cleanly; the same command goes on with the same data. A node that dies is reported and left dead,
    so that you can see what a cluster does without it; start it again with the command that is shown.

    Topics have three copies unless you say otherwise, of which two must be in sync for acks=all (fewer with fewer
    brokers), so that any one broker may die: -c default.replication.factor=1 is Kafka's default.

    Example: `barnabas cluster up --brokers 3`
    """
    from barnabas.testing.process_cluster import ClusterProcess

    if controllers % 2 == 0 and controllers:
        note(f"note: {controllers} controllers survive no more failures than {controllers - 1}; odd numbers are usual")
    cluster = ClusterProcess(
        data_dir.absolute(),
        brokers=brokers,
        controllers=controllers,
        port=port,
        settings=[*replication_settings(brokers), *(settings or [])],
    )
    for number in (signal.SIGTERM, signal.SIGHUP):  # the nodes have sessions of their own, and would live on
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
    """As many copies as any one death asks for, of every topic. Kafka's defaults are one copy of a user's topic, which
    dies with its broker, and three of an internal one, which fewer brokers cannot make."""
    copies = min(brokers, _COPIES_MAX)
    in_sync = max(copies - 1, 1)
    return [*(f"{name}={copies}" for name in _FACTORS), *(f"{name}={in_sync}" for name in _IN_SYNC)]


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C, also where that is ignored, as it is behind a shell's `&`."""
    raise KeyboardInterrupt


def _show(cluster: ClusterProcess, seconds: float) -> None:
    rows = [
        (node_id, _roles(cluster, node_id), node.bootstrap_servers, _pid(cluster, node_id), str(node.data_dir))
        for node_id, node in sorted(cluster.nodes.items())
    ]
    print_table(["NODE>", "ROLES", "ADDRESS", "PID>", "DATA"], rows)
    print(f"barnabas cluster ready: {cluster.bootstrap_servers}  (started in {seconds:.1f} s)", flush=True)
    note("Ctrl-C stops it. Look at it with: barnabas cluster describe -b " + cluster.bootstrap_servers)


def _watch(cluster: ClusterProcess) -> None:
    """Until Ctrl-C, SIGTERM or the terminal's end; then a clean shutdown of what is still alive."""
    dead: set[int] = set()
    try:
        while len(dead) < len(cluster.nodes):
            time.sleep(_LOOK_S)
            for node_id, node in cluster.nodes.items():
                if node_id not in dead and not node.alive:
                    dead.add(node_id)
                    note(f"node {node_id} has ended; its log is {node.log_path}. Start it again with:")
                    note("  " + shlex.join(node.command()))
        fail("Every node has ended.", EXIT_FAILED)
    except KeyboardInterrupt:
        note("stopping in order; Ctrl-C again kills ...")
        try:
            cluster.stop()
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            note("killed: the next start looks through the logs")
        finally:
            cluster.kill_all()


def _roles(cluster: ClusterProcess, node_id: int) -> str:
    known = (("broker", cluster.broker_ids), ("controller", cluster.controller_ids))
    return ",".join(role for role, ids in known if node_id in ids)


def _pid(cluster: ClusterProcess, node_id: int) -> str:
    """As `kill` takes it, without commas."""
    process = cluster.node(node_id).process
    return "-" if process is None else str(process.pid)
