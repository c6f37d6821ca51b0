"""Shell: `barnabas mirror run`, which is also `connect-mirror-maker`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.output import EXIT_USAGE, emit, fail, note, print_table, size_text
from barnabas.cli.session import read_properties, run

if TYPE_CHECKING:
    from barnabas.spark.mirror.config.values import MirrorConfig
    from barnabas.spark.mirror.deciding.lag import MirrorLag
    from barnabas.spark.mirror.running.pair import PairStatus
    from barnabas.spark.mirror.running.service import MirrorService

File = Annotated[str, typer.Argument(metavar="mm2.properties", help="The file, with MirrorMaker's keys.")]
LAG_COLUMNS = ("PAIR", "TOPIC", "PARTITION", "POSITION", "END", "LAG>", "BYTES>", "SECONDS>", "LOST>")


def mirror_run(
    file: File,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--clusters", metavar="ALIAS,...", help="Only copy into these clusters. Default: all."),
    ] = None,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master; default: spark.master of the file.")
    ] = None,
    status_interval: Annotated[
        int, typer.Option("--status-interval", metavar="SECONDS", help="Print the lag this often; 0: never.")
    ] = 60,
    json: Annotated[bool, typer.Option("--json", help="Print the lag as lines of JSON.")] = False,
) -> None:
    """Mirror clusters until the process is stopped, as a file of MirrorMaker 2 says.

    A run continues where the one before, or Kafka's MirrorMaker, stopped or was killed. Ctrl-C ends after the current
    micro-batch.

    Example: `barnabas mirror run mm2.properties --clusters B`
    """
    names = [name.strip() for given in clusters or [] for name in given.split(",") if name.strip()]
    run_mirror(file, names, master=master, status_interval=status_interval, as_json=json)


def run_mirror(
    file: str, targets: Sequence[str], *, master: str | None = None, status_interval: int = 60, as_json: bool = False
) -> None:
    """Mirror until SIGINT or SIGTERM."""
    config = read_mirror_config(file)
    try:
        import_module("pyspark")  # the modules below import it only when they start a session
        from barnabas.core.telemetry.log import configure_logging
        from barnabas.spark.mirror.running.service import MirrorService, first_error
        from barnabas.spark.mirror.running.spark_session import spark_copiers
    except ModuleNotFoundError as error:
        fail(f"mirroring needs {error.name}: pip install 'barnabas[spark]'", EXIT_USAGE)
    configure_logging()

    async def main() -> None:
        with spark_copiers(config, targets, master) as new_copier:
            service = MirrorService(config, targets, new_copier)
            _stop_on_signals(service)
            print(f"barnabas mirror ready: {', '.join(runner.config.name for runner in service.runners)}", flush=True)
            try:
                async with asyncio.TaskGroup() as tasks:
                    printing = tasks.create_task(_print_status(service, status_interval, as_json))
                    await service.run()
                    printing.cancel()
            except BaseExceptionGroup as errors:
                raise first_error(errors) from None

    run(main)


def read_mirror_config(file: str) -> MirrorConfig:
    """The file, with its references to secrets resolved. Ends the command with one line if the file is wrong."""
    from barnabas.core.config_providers import ConfigProviders
    from barnabas.core.errors import BarnabasError
    from barnabas.spark.mirror.config.parsing import parse_mirror_config

    properties = {name: str(text) for name, text in read_properties(file).items()}
    try:
        return parse_mirror_config(ConfigProviders(properties).resolve(properties))
    except BarnabasError as error:
        fail(f"{file}: {error}", EXIT_USAGE)


def _stop_on_signals(service: MirrorService) -> None:
    """A second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    received: list[int] = []

    def on_signal(number: int) -> None:
        if received and task is not None:
            task.cancel()
            return
        received.append(number)
        note("stopping after the current micro-batch; press Ctrl-C again to end at once ...")
        service.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)


async def _print_status(service: MirrorService, interval_s: int, as_json: bool) -> None:
    while interval_s > 0:
        await asyncio.sleep(interval_s)
        status = service.status()
        if as_json:
            emit(json.dumps([_status_json(pair) for pair in status]))
            sys.stdout.flush()
            continue
        print_table(LAG_COLUMNS, [lag_cells(pair.pair, lag) for pair in status for lag in pair.lags], empty="no topics")
        for pair in status:
            for job, error in pair.errors.items():
                note(f"{pair.pair}: {job}: {error}")


def lag_cells(pair: str, lag: MirrorLag) -> tuple[object, ...]:
    """The cells of one partition, in the order of LAG_COLUMNS."""
    tp = lag.partition
    size = None if lag.bytes is None else size_text(lag.bytes)
    seconds = None if lag.seconds is None else round(lag.seconds)
    records = "unknown" if lag.records is None else lag.records
    return (pair, tp.topic, tp.partition, lag.position, lag.source_end, records, size, seconds, lag.lost)


def lag_json(lag: MirrorLag) -> dict[str, Any]:
    """One partition as JSON."""
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "position": lag.position,
        "sourceEnd": lag.source_end,
        "lag": lag.records,
        "lagBytes": lag.bytes,
        "lagSeconds": None if lag.seconds is None else round(lag.seconds, 3),
        "copied": lag.copied,
        "lost": lag.lost,
    }


def _status_json(status: PairStatus) -> dict[str, Any]:
    plain = asdict(status)
    return {**plain, "lags": [lag_json(lag) for lag in status.lags]}
