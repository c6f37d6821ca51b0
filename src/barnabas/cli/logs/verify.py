"""Shell: `barnabas logs verify` and `barnabas logs repair`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.options import DryRun, Json, Yes
from barnabas.cli.output import EXIT_FAILED, EXIT_USAGE, confirm, fail, note, print_json, print_table, size_text

if TYPE_CHECKING:
    from barnabas.server.repair.findings import Finding
    from barnabas.server.storage.fs import FileSystem

DataDirs = Annotated[list[str], typer.Argument(help="Data directories (log.dirs).", metavar="DIR...")]


def verify(data_dirs: DataDirs, json: Json = False) -> None:
    """Check every file of data directories: CRCs, offsets, epochs, indexes, checkpoints, metadata snapshots.

    Example: `barnabas logs verify /var/lib/barnabas`

    The broker may run. The exit code is 1 if a file is damaged. A torn end is no damage: a running broker is writing
    there, or the next start cuts it off.
    """
    from barnabas.server.repair.findings import DERIVED, ROT

    findings = _check(data_dirs, quiet=json)
    if json:
        print_json([one.as_json() for one in findings])
    elif findings:
        print_table(["FILE", "STATE", "POSITION>", "DETAIL"], [_row(one) for one in findings])
    damaged = [one for one in findings if one.state in (ROT, DERIVED)]
    if damaged:
        fail(f"{len(damaged)} damaged files; docs/OPERATIONS.md says what to do", EXIT_FAILED)
    if not json:
        note("no damage found")


def repair(data_dirs: DataDirs, dry_run: DryRun = False, yes: Yes = False, json: Json = False) -> None:
    """Cut damaged logs of a stopped broker at the damage, and delete damaged files that can be rebuilt.

    Example: `barnabas logs repair --dry-run /var/lib/barnabas`

    Everything behind the damage is lost for this replica. What is cut off is kept beside the log, in files whose names
    begin with `damaged-`.
    """
    from barnabas.core.errors import BarnabasError
    from barnabas.server.repair.steps import apply, plan
    from barnabas.server.storage import names
    from barnabas.server.storage.fs import OsFileSystem

    fs = OsFileSystem()
    locks = []
    try:
        for directory in [] if dry_run else data_dirs:
            _require_directory(fs, directory)
            locks.append(fs.lock(f"{directory.rstrip('/')}/{names.LOCK}"))
        steps = plan(fs, _check(data_dirs, quiet=json))
        if json:
            print_json([step.as_json() for step in steps])
        elif steps:
            print_table(["FILE", "ACTION", "BYTES>", "FROM OFFSET"], [step.as_row() for step in steps])
        if dry_run or not steps:
            note("nothing was changed" if steps else "nothing to repair")
            return
        confirm(yes, f"change {len(steps)} files as listed?")
        apply(fs, [directory.rstrip("/") for directory in data_dirs], steps)
        note(f"{len(steps)} files were changed")
    except BarnabasError as error:
        fail(str(error))
    finally:
        for lock in locks:
            lock.release()


def _check(data_dirs: list[str], *, quiet: bool) -> list[Finding]:
    from rich.console import Console
    from rich.progress import Progress

    from barnabas.core.errors import BarnabasError
    from barnabas.server.repair.findings import check_directory, total_bytes
    from barnabas.server.storage.fs import OsFileSystem

    fs = OsFileSystem()
    findings: list[Finding] = []
    try:
        with Progress(console=Console(stderr=True), transient=True, disable=quiet) as progress:
            for given in data_dirs:
                directory = given.rstrip("/")
                _require_directory(fs, directory)
                total = total_bytes(fs, directory)
                task = progress.add_task(f"{directory} ({size_text(total)})", total=total)
                findings += check_directory(fs, directory, partial(progress.advance, task))
    except BarnabasError as error:
        fail(str(error))
    return findings


def _require_directory(fs: FileSystem, directory: str) -> None:
    if not fs.exists(directory) or not fs.stat(directory).is_dir:
        fail(f"{directory} is not a directory", EXIT_USAGE)


def _row(one: Finding) -> tuple[object, ...]:
    return one.path, one.state, "" if one.damage is None else one.damage.position, one.detail
