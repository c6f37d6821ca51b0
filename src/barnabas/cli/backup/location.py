"""Shell: where a backup is: a directory, or a prefix in a bucket of an S3-compatible store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.completing import runs as complete_runs
from barnabas.cli.output import EXIT_USAGE, fail

if TYPE_CHECKING:
    from barnabas.backup.store import BackupStore

Location = Annotated[
    str, typer.Argument(help="The backup: a directory, or s3://BUCKET/PREFIX.", metavar="LOCATION", show_default=False)
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="RUN|TIME",
        help="A run, or the newest that had begun at this time (UTC).",
        autocompletion=complete_runs,
    ),
]
TopicPatterns = Annotated[
    list[str] | None, typer.Option("--topics", help="Only topics that this regular expression matches. Repeatable.")
]
ExcludedPatterns = Annotated[
    list[str] | None, typer.Option("--exclude", help="No topics that this regular expression matches. Repeatable.")
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--s3-endpoint",
        metavar="URL",
        help="The address of an S3-compatible store that is not Amazon's.",
        envvar="AWS_ENDPOINT_URL",
    ),
]
Region = Annotated[
    str | None, typer.Option("--s3-region", metavar="REGION", help="The region of the bucket.", envvar="AWS_REGION")
]

_FILE_THREADS = 4


def open_backup(location: str, endpoint: str | None = None, region: str | None = None) -> BackupStore:
    """The backup at `location`. The keys of S3 are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or of the
    machine's role. Exits with a usage error for a location of another kind."""
    from barnabas.backup.store import BackupStore

    scheme, separator, rest = location.partition("://")
    if separator and scheme == "s3":
        from barnabas.core.objects.cloud import open_s3

        bucket, _, prefix = rest.partition("/")
        if not bucket:
            fail(f"{location}: write s3://BUCKET/PREFIX", EXIT_USAGE)
        store = open_s3(bucket=bucket, region=region, endpoint=endpoint, path_style=endpoint is not None)
        return BackupStore(store, f"{prefix.strip('/')}/" if prefix.strip("/") else "", location)
    if separator and scheme != "file":
        fail(f"{location}: a backup is in a directory or at s3://BUCKET/PREFIX", EXIT_USAGE)
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from barnabas.server.storage.fs import OsFileSystem
    from barnabas.server.tiering.store.files import FileObjectStore

    path = str(Path(rest if separator else location).absolute())
    return BackupStore(FileObjectStore(OsFileSystem(), path, ThreadPoolExecutor(_FILE_THREADS)), "", location)
