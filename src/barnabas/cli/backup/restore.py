"""Shell: `barnabas restore`: restore a run of a backup into a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barnabas.cli.backup.location import At, Endpoint, ExcludedPatterns, Location, Region, TopicPatterns, open_backup
from barnabas.cli.backup.text import print_report, progress_bar
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json
from barnabas.cli.output import EXIT_USAGE, fail, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.backup.restoring.plan import Method
    from barnabas.backup.restoring.restore import RestoreReport
    from barnabas.backup.serving.answers import ServerAddress
    from barnabas.client.admin import AsyncAdmin


def restore(
    location: Location,
    at: At = None,
    topics: TopicPatterns = None,
    exclude: ExcludedPatterns = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="link|produce", help="How records are written; by default `link` if possible."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Where the brokers reach this process (by link)."),
    ] = None,
    dry_run: DryRun = False,
    s3_endpoint: Endpoint = None,
    s3_region: Region = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Restore a run into an empty cluster; with `--topics`, single topics that the cluster does not have.

    Barnabas gets the same bytes at the same offsets, by a cluster link to this process. Other brokers get the committed
    records by Produce, and translated offsets of groups. Nothing is ever overwritten. Repeat an interrupted command.

    Example: `barnabas restore s3://backups/paris --at 2026-11-24T03:00:00Z -b new-1:9092`
    """
    from barnabas.backup.cluster_state import BackupTopics
    from barnabas.backup.restoring.restore import Restore, RestoreOptions

    selection = BackupTopics(tuple(topics or ()), tuple(exclude or ()))
    selection.check()
    options = RestoreOptions(selection, _method(by), _address(listen), dry_run)
    store = open_backup(location, s3_endpoint, s3_region)

    async def command(admin: AsyncAdmin) -> RestoreReport:
        run = await store.choose(at)
        with progress_bar("restoring", hidden=json) as advance:
            work = Restore(admin, store, run, options, lambda sent: advance(sent, max(work.size, sent)))
            return await work.run()

    report = run_admin(bootstrap_server, command, read_properties(command_config))
    if not json:
        print_report(report, dry_run=dry_run)
        return
    print_json(
        {
            "run": report.run,
            "method": report.method.value,
            "topics": report.topics,
            "partitions": report.partitions,
            "sent": report.bytes_sent,
            "groups": report.groups,
            "acls": report.acls,
            "quotas": report.quotas,
            "notes": list(report.notes),
        }
    )


def _method(text: str | None) -> Method | None:
    from barnabas.backup.restoring.plan import Method

    if text is None:
        return None
    try:
        return Method(text)
    except ValueError:
        fail(f"--by {text}: write link or produce", EXIT_USAGE)


def _address(text: str | None) -> ServerAddress | None:
    from barnabas.backup.serving.answers import ServerAddress

    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        fail(f"--listen {text}: write HOST:PORT; port 0 is any free port", EXIT_USAGE)
    return ServerAddress(host.strip("[]"), int(port))
