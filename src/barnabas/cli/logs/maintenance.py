"""Shell: `barnabas logs compact` and `barnabas logs enforce-retention`.

The commands compact logs, or delete old segments, once and now, and print a report.

Without a directory, the commands send the request to a running broker (`broker_maintenance`). With a directory, they
work on the data of a stopped broker. A running broker locks its directories; the commands then fail and change nothing.
The commands open the directory as the broker would, with the topic configs from its metadata log, and close it as a
clean shutdown does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, fail, print_json, print_table, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from barnabas.server.metadata.config_view import ConfigView
    from barnabas.server.storage.directory.log_dir import LogDir
    from barnabas.server.storage.log import Log

DataDir = Annotated[
    str | None,
    typer.Argument(
        help=("The data directory (log.dirs) of a stopped broker; if it is not given, a running broker does the work."),
        show_default=False,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only these topics; for a running broker TOPIC or TOPIC:0,1."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-c", metavar="KEY=VALUE", help="A topic setting for this run; overrides the topic's own."),
]


@dataclass(frozen=True)
class OpenLog:
    """A log of the directory, and the high watermark up to which it is known to be replicated."""

    log: Log
    high_watermark: int


def compact(
    data_dir: DataDir = None,
    topic: Topics = None,
    roll: Annotated[
        bool, typer.Option("--roll", help="Roll the active segments first, to include their records.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Compact logs below the dirty ratio too; removes expired tombstones.")
    ] = False,
    settings: Settings = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Compact the logs that are due and print the result, or the reason why a log was not compacted.

    Example: `barnabas logs compact --topic prices:0 --force`

    For a stopped broker: `barnabas logs compact ./data --topic prices --roll --force`
    """
    if data_dir is None:
        from barnabas.cli.cluster.broker_maintenance import compact_running

        _no_settings(settings)
        compact_running(topic, bootstrap_server, command_config, roll=roll, force=force, dry_run=dry_run, json=json)
        return
    with _logs(data_dir, topic, settings) as (opened, config):
        rows = [_compact(entry, config, roll=roll, force=force, dry_run=dry_run) for entry in opened]
    if json:
        print_json(rows)
    else:
        print_table(
            ["PARTITION", "WHAT", "DIRTY>", "BEFORE>", "AFTER>", "RECORDS REMOVED>", "CLEAN UP TO>"],
            [
                (
                    r["partition"],
                    r["outcome"],
                    f"{r['dirty_ratio']:.0%}",
                    size_text(r["bytes_before"]),
                    size_text(r["bytes_after"]),
                    r["records_removed"],
                    r["cleaned_offset"],
                )
                for r in rows
            ],
        )
    if any(r["failed"] for r in rows):
        raise SystemExit(EXIT_FAILED)


def _compact(entry: OpenLog, config: Any, *, roll: bool, force: bool, dry_run: bool) -> dict[str, Any]:
    """Compact one log. An error becomes a row of the report, so that the other logs are still compacted."""
    from barnabas.core.clock import SystemClock
    from barnabas.core.errors import KafkaError
    from barnabas.core.rng import system_rng
    from barnabas.server.replication.cleaning.worker import choose_engine
    from barnabas.server.storage.cleaner.cleanable import assess
    from barnabas.server.storage.cleaner.inline import clean

    target, now_ms = entry.log, SystemClock().now_ms()
    before = target.size_bytes
    row = {"partition": str(target.topic_partition), "failed": False, "bytes_before": before, "records_removed": 0}
    try:
        if roll and target.config.compact and not dry_run:
            target.roll(now_ms)
        found = assess(target, entry.high_watermark, now_ms)
        row |= {"outcome": str(found), "dirty_ratio": found.dirty_ratio}
        if found.verdict.possible and (found.verdict.due or force) and not dry_run:
            rng = system_rng()
            secret = (rng.getrandbits(64), rng.getrandbits(64))
            done = clean(target, found, now_ms=now_ms, secret=secret, config=config, engine=choose_engine())
            stats = done.stats
            row |= {"outcome": "compacted", "records_removed": stats.records_read - stats.records_kept}
    except KafkaError as error:
        row |= {"outcome": f"failed: {error}", "failed": True}
    return {"dirty_ratio": 0.0, **row, "bytes_after": target.size_bytes, "cleaned_offset": target.cleaned_offset}


def enforce_retention(
    data_dir: DataDir = None,
    topic: Topics = None,
    settings: Settings = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Apply retention (time, size, log start offset) and print which segments were deleted.

    Example: `barnabas logs enforce-retention --topic clicks`

    For a stopped broker: `barnabas logs enforce-retention ./data --topic clicks -c retention.ms=3600000`
    """
    if data_dir is None:
        from barnabas.cli.cluster.broker_maintenance import enforce_retention_running

        _no_settings(settings)
        enforce_retention_running(topic, bootstrap_server, command_config, dry_run=dry_run, json=json)
        return
    with _logs(data_dir, topic, settings) as (opened, _):
        rows = [_enforce_retention(entry, dry_run=dry_run) for entry in opened]
    if json:
        print_json(rows)
    else:
        print_table(
            ["PARTITION", "WHAT", "SEGMENTS DELETED>", "BEFORE>", "AFTER>", "STARTS AT>"],
            [
                (
                    r["partition"],
                    r["outcome"],
                    r["segments_deleted"],
                    size_text(r["bytes_before"]),
                    size_text(r["bytes_after"]),
                    r["log_start_offset"],
                )
                for r in rows
            ],
        )
    if any(r["failed"] for r in rows):
        raise SystemExit(EXIT_FAILED)


def _enforce_retention(entry: OpenLog, *, dry_run: bool) -> dict[str, Any]:
    from barnabas.core.clock import SystemClock
    from barnabas.core.errors import KafkaError

    target = entry.log
    row: dict[str, Any] = {"partition": str(target.topic_partition), "bytes_before": target.size_bytes, "failed": False}
    config = target.config
    policy = ",".join(config.cleanup_policy) or "none"
    rules = f"cleanup.policy={policy} retention.ms={config.retention_ms} retention.bytes={config.retention_bytes}"
    deleted = 0
    try:
        if not dry_run:
            deleted = target.enforce_retention(SystemClock().now_ms(), entry.high_watermark)
        row["outcome"] = rules
    except KafkaError as error:
        row |= {"outcome": f"failed: {error}", "failed": True}
    after = {"bytes_after": target.size_bytes, "log_start_offset": target.log_start_offset}
    return {**row, **after, "segments_deleted": deleted}


def _no_settings(settings: list[str] | None) -> None:
    if settings:
        fail(
            ("-c applies to the data of a stopped broker; for a running broker use `barnabas configs alter`"),
            EXIT_USAGE,
        )


@contextmanager
def _logs(data_dir: str, topics: list[str] | None, settings: list[str] | None) -> Iterator[tuple[list[OpenLog], Any]]:
    """Open the named logs of the directory. At the end, close them cleanly and write their checkpoints."""
    from pathlib import Path

    from barnabas.core.clock import SystemClock
    from barnabas.core.config import ConfigError
    from barnabas.core.errors import KafkaError
    from barnabas.core.rng import random_uuid, system_rng
    from barnabas.server.metadata.configs.tables import TOPIC_CONFIGS
    from barnabas.server.node.config import parse_assignments
    from barnabas.server.node.typed_configs import LOG, build_cleaner_config
    from barnabas.server.storage.directory.identity import read_meta_properties
    from barnabas.server.storage.directory.log_dir import LogDir
    from barnabas.server.storage.fs import OsFileSystem

    fs, path = OsFileSystem(), str(Path(data_dir).absolute())
    if not Path(path, "meta.properties").exists():
        fail(f"{data_dir} is not a broker's data directory: it has no meta.properties")
    try:
        given = parse_assignments(settings or [])
        overrides = {name: TOPIC_CONFIGS.parse(name, text) for name, text in given.items() if name in TOPIC_CONFIGS}
        meta = read_meta_properties(fs, path)
        assert meta is not None, "checked above"
        new_id = random_uuid(system_rng())
        directory = LogDir.open(fs, path, cluster_id=None, node_id=meta.node_id, new_directory_id=new_id)
    except (KafkaError, ConfigError) as error:
        fail(str(error))
    try:
        view = _config_view(directory)
        now_ms = SystemClock().now_ms()
        opened = []
        for found in directory.scan():
            name = found.topic_partition
            if found.future or (topics and name.topic not in topics):
                continue
            config = LOG.build({**view.topic(name.topic), **overrides}.__getitem__)
            target = directory.open_log(found, config, now_ms=now_ms)
            opened.append(OpenLog(target, directory.high_watermarks.get(name, 0)))
        yield opened, build_cleaner_config(view)
        directory.checkpoint_cleaned(durable=True)
        directory.checkpoint_log_starts(durable=True)
    except KafkaError as error:
        fail(str(error))
    finally:
        directory.close(broker_epoch=directory.previous_broker_epoch)


def _config_view(directory: LogDir) -> ConfigView:
    """The cluster's configs, from the metadata log in this directory; Kafka's defaults if there is no metadata log."""
    from concurrent.futures import ThreadPoolExecutor

    from barnabas.core.clock import SystemClock
    from barnabas.core.ids import METADATA_TOPIC
    from barnabas.server.metadata.config_view import ConfigView
    from barnabas.server.metadata.image.cluster import ClusterImage
    from barnabas.server.metadata.loader import Loader
    from barnabas.server.metadata.publish import Publisher
    from barnabas.server.quorum.offline import replay

    publisher = Publisher(ClusterImage(cluster_id=directory.cluster_id))
    if directory.fs.exists(f"{directory.path}/{METADATA_TOPIC}-0"):
        with ThreadPoolExecutor(1) as executor:
            replay(
                directory.fs,
                directory.path,
                Loader(publisher),
                clock=SystemClock(),
                executor=executor,
                clean_shutdown=directory.clean_shutdown,
            )
    return ConfigView(publisher.image.configs, node_id=directory.node_id)
