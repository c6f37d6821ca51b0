"""Shell: `barnabas verify`: compare a backup with its checksums, or with a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.backup.location import At, Endpoint, Location, Region, open_backup
from barnabas.cli.backup.text import print_check, progress_bar
from barnabas.cli.links.text import print_comparisons
from barnabas.cli.options import Bootstrap, CommandConfig, Json
from barnabas.cli.output import fail, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.cli.session import run as run_command

if TYPE_CHECKING:
    from barnabas.backup.store import BackupStore
    from barnabas.backup.verifying import BackupCheck
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.links.verifying import Comparison


def verify(
    location: Location,
    at: At = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Compare a run with the running cluster, byte for byte.")
    ] = False,
    s3_endpoint: Endpoint = None,
    s3_region: Region = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Read a backup, and check every object against its checksum; with `--cluster`, compare a run with a cluster.

    Exits with 1 if something is damaged, missing or different. With `--at`, only one run is checked.

    Example: `barnabas verify s3://backups/paris`
    """
    store = open_backup(location, s3_endpoint, s3_region)
    if cluster:
        _with_cluster(store, at, bootstrap_server, json=json, command_config=command_config)
        return

    async def command() -> BackupCheck:
        from barnabas.backup.verifying import verify_backup

        runs = None if at is None else [(await store.choose(at)).id]
        done = 0.0
        with progress_bar("verifying", hidden=json) as advance:

            def on_checked(size: int) -> None:
                nonlocal done
                done += size
                advance(done, 0)

            return await verify_backup(store, runs, on_checked)

    check = run_command(command)
    if json:
        print_json(_check_document(check))
    else:
        print_check(check)
    if check.damage:
        runs = sorted({run_id for damage in check.damage for run_id in damage.runs})
        fail(f"{len(check.damage)} objects are damaged; not restorable: {', '.join(runs)}. Make a new run with --full.")
    if not check.runs:
        fail(f"{location} has no complete run")


def _check_document(check: BackupCheck) -> dict[str, Any]:
    return {
        "runs": check.runs,
        "objects": check.objects,
        "size": check.size,
        "damage": [{"object": one.name, "problem": one.problem, "runs": list(one.runs)} for one in check.damage],
        "interrupted": list(check.interrupted),
        "leftovers": check.leftovers,
        "leftover_size": check.leftover_bytes,
    }


def _with_cluster(
    store: BackupStore, at: str | None, bootstrap_server: str, *, json: bool, command_config: str | None
) -> None:
    async def command(admin: AsyncAdmin) -> list[Comparison]:
        from barnabas.backup.verifying import compare_with_cluster

        run = await store.choose(at)
        return [one async for one in compare_with_cluster(store, run, admin)]

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([_comparison_document(one) for one in found])
    else:
        print_comparisons(found, missing="MISSING", empty="no partitions")
    different = [one for one in found if not one.is_equal or one.missing]
    if different:
        fail(f"{len(different)} of {len(found)} partitions differ, or lack records")


def _comparison_document(one: Comparison) -> dict[str, Any]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "start": one.start,
        "end": one.end,
        "batches": one.batches,
        "size": one.size_bytes,
        "missing": one.missing,
        "differs_at": one.differs_at,
        "error": one.error,
    }
