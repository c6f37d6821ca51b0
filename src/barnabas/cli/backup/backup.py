"""Shell: `barnabas backup`: back up a cluster, list the runs of a backup, and delete old ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.backup.location import At, Endpoint, ExcludedPatterns, Location, Region, TopicPatterns, open_backup
from barnabas.cli.backup.text import (
    described_document,
    print_notes,
    print_run,
    print_runs,
    progress_bar,
    run_document,
)
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json, size_text
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.cli.session import run as run_command

if TYPE_CHECKING:
    from barnabas.backup.maintaining import Pruned
    from barnabas.backup.values import RunManifest
    from barnabas.client.admin import AsyncAdmin

app = noun(
    "Backups of a cluster in a directory or an S3-compatible store. `barnabas restore` and `barnabas verify` read them."
)

_DAY_MS = 24 * 3600 * 1000


@app.command("run")
def run(
    location: Location,
    topics: TopicPatterns = None,
    exclude: ExcludedPatterns = None,
    full: Annotated[bool, typer.Option("--full", help="Read all records again, not only new ones.")] = False,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=64, help="Partitions that are copied at the same time.")
    ] = 4,
    object_mib: Annotated[
        int, typer.Option("--object-mib", min=1, max=1024, help="The size of a full object, in MiB.")
    ] = 32,
    s3_endpoint: Endpoint = None,
    s3_region: Region = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Back up the running cluster: topics, configs, records, offsets of groups, ACLs and quotas.

    Each run reads what is new since the run before. The first, and one with `--full`, read everything.

    Example: `barnabas backup run s3://backups/paris`
    """
    from barnabas.backup.cluster_state import BackupTopics
    from barnabas.backup.taking import BackupOptions, BackupProgress, BackupRun
    from barnabas.core.clock import SystemClock
    from barnabas.core.rng import system_rng

    selection = BackupTopics(tuple(topics or ()), tuple(exclude or ()))
    selection.check()
    options = BackupOptions(selection, full, object_mib * 1024 * 1024, parallel)
    store = open_backup(location, s3_endpoint, s3_region)

    async def command(admin: AsyncAdmin) -> RunManifest:
        with progress_bar("backing up", hidden=json, of_bytes=False) as advance:

            def on_progress(progress: BackupProgress) -> None:
                advance(progress.offsets_done, progress.offsets)

            return await BackupRun(admin, store, options, SystemClock(), system_rng(), on_progress).run()

    done = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(run_document(done))
        return
    print_notes(done.notes)
    note(
        f"run {done.id}: {len(done.topics)} topics, {len(done.groups)} groups, {size_text(done.added_bytes)} added, "
        f"{size_text(done.size)} in all"
    )


@app.command("list")
def list_command(
    location: Location, s3_endpoint: Endpoint = None, s3_region: Region = None, json: Json = False
) -> None:
    """List the runs of a backup, the oldest first.

    Example: `barnabas backup list s3://backups/paris`
    """
    from barnabas.backup.maintaining import list_runs

    store = open_backup(location, s3_endpoint, s3_region)
    runs = run_command(lambda: list_runs(store))
    if json:
        print_json([run_document(one) for one in runs if not isinstance(one, Exception)])
        for one in runs:
            if isinstance(one, Exception):
                note(f"note: {one}")
    else:
        print_runs(runs)


@app.command()
def describe(
    location: Location, at: At = None, s3_endpoint: Endpoint = None, s3_region: Region = None, json: Json = False
) -> None:
    """Show what a run has: partitions with their offsets, groups, and what could not be read.

    Example: `barnabas backup describe s3://backups/paris --at 2026-11-24T03:00:00Z`
    """
    store = open_backup(location, s3_endpoint, s3_region)
    found = run_command(lambda: store.choose(at))
    if json:
        print_json(described_document(found))
    else:
        print_run(found)


@app.command()
def prune(
    location: Location,
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Keep this many of the newest runs.")] = None,
    keep_days: Annotated[
        float | None, typer.Option("--keep-days", min=0, help="Keep the runs of the last days, too.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    s3_endpoint: Endpoint = None,
    s3_region: Region = None,
    json: Json = False,
) -> None:
    """Delete old runs, and the objects that no other run needs. The newest run is always kept.

    Without `--keep` and `--keep-days`, only what interrupted runs have left is deleted. Not while a backup runs.

    Example: `barnabas backup prune s3://backups/paris --keep 7 --keep-days 30 --yes`
    """
    from barnabas.backup.keeping import Retention
    from barnabas.backup.maintaining import prune as prune_backup
    from barnabas.core.clock import SystemClock

    if keep is None and keep_days is None and not dry_run and not yes:
        fail("give --keep or --keep-days; with --yes alone, only leftovers are deleted", EXIT_USAGE)
    retention = Retention(keep, None if keep_days is None else int(keep_days * _DAY_MS))
    store = open_backup(location, s3_endpoint, s3_region)

    async def command(*, dry: bool) -> Pruned:
        return await prune_backup(store, retention, SystemClock().now_ms(), dry_run=dry)

    planned = run_command(lambda: command(dry=True))
    if not dry_run and (planned.runs or planned.objects):
        confirm(yes, f"Delete {len(planned.runs)} runs and {size_text(planned.size)} of {location}?")
        planned = run_command(lambda: command(dry=False))
    if json:
        print_json({"runs": planned.runs, "kept": planned.kept, "objects": planned.objects, "size": planned.size})
        return
    for run_id in planned.runs:
        note(f"run {run_id} {'would be' if dry_run else 'is'} deleted")
    verb = "would be deleted" if dry_run else "deleted"
    note(f"{planned.objects} objects {verb} ({size_text(planned.size)}), {len(planned.kept)} runs kept")
