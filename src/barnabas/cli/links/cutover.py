"""Shell: the commands of `barnabas links` that move the work to the mirrors and back, and that compare both sides."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.links.options import Name, Source, SourceConfig, Topics, Wait, many, report_changes
from barnabas.cli.links.text import print_comparisons, print_drill
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run_admin, with_bootstrap

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.links import Link, MirrorChange


def promote(
    name: Name,
    topics: Topics = None,
    timeout: Wait = 300,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Take topics over without loss: wait until the mirrors have all records, then let the topics take writes.

    Stop the producers on the source first. If the mirrors do not catch up in time, they run on.

    Example: `barnabas links promote paris`
    """
    _cut_over(name, topics, timeout, bootstrap_server, dry_run, json, command_config, planned=True)


def failover(
    name: Name,
    topics: Topics = None,
    timeout: Wait = 60,
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Take topics over now, whatever the mirrors do not have yet. Works when the source is gone.

    Example: `barnabas links failover paris --yes`
    """
    if not dry_run:
        confirm(yes, f"Let the topics of link {name} take writes, and lose what is not mirrored yet?")
    _cut_over(name, topics, timeout, bootstrap_server, dry_run, json, command_config, planned=False)


def _cut_over(
    name: str,
    topics: list[str] | None,
    timeout: float,
    bootstrap_server: str,
    dry_run: bool,
    json: bool,
    command_config: str | None,
    *,
    planned: bool,
) -> None:
    async def command(admin: AsyncAdmin) -> list[MirrorChange]:
        from barnabas.client.admin.links import MirrorAction
        from barnabas.client.links import cutover

        if dry_run:
            return await admin.alter_mirrors(name, MirrorAction.STOP, topics or (), validate_only=True)
        if planned:
            return await cutover.promote(admin, name, topics or (), timeout_s=timeout, progress=note)
        return await cutover.failover(admin, name, topics or (), timeout_s=timeout)

    changes = run_admin(bootstrap_server, command, read_properties(command_config))
    report_changes(changes, json=json, dry_run=dry_run)


def reverse(
    name: Name,
    source: Annotated[
        str, typer.Option("--source", metavar="HOST:PORT", help="This cluster, as the other one reaches it.")
    ],
    other: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="The cluster that becomes the mirror.")],
    link: Annotated[
        str | None, typer.Option("--link", help="The name of the link there; by default LINK-reverse.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Argument(help="Regular expressions of the topics; without any, all stopped ones.", metavar="[TOPIC]..."),
    ] = None,
    yes: Yes = False,
    source_config: Annotated[
        str | None, typer.Option("--source-config", metavar="FILE", help="Client settings of the brokers there.")
    ] = None,
    to_config: Annotated[
        str | None, typer.Option("--to-config", metavar="FILE", help="Client settings of this command for --to.")
    ] = None,
    config: Annotated[list[str] | None, many("A setting mirror.*=VALUE of the link there.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """After a failover, mirror back: the former source becomes a mirror of this cluster.

    What the former source has and this cluster has not is cut off there; its brokers save it in mirror-tails first.
    Afterwards, `links promote` on the other cluster moves the work back.

    Example: `barnabas links reverse paris --source here:9092 --to kafka-1:9092`
    """
    from barnabas.client.admin.links import Link

    if not dry_run:
        confirm(yes, f"Let the cluster at {other} mirror this one, and cut off what this one does not have?")
    client = {key: str(value) for key, value in read_properties(source_config).items() if key != "bootstrap.servers"}
    back = Link(link or f"{name}-reverse", source, client, settings=parse_settings(config))

    async def command(admin: AsyncAdmin) -> list[MirrorChange]:
        from barnabas.client.admin import AsyncAdmin as Admin
        from barnabas.client.links import cutover

        async with Admin(with_bootstrap(other, read_properties(to_config))) as there:
            return await cutover.reverse(admin, there, name, back, topics or (), validate_only=dry_run)

    changes = run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"link {back.name} on {other}, from {source}:")
    report_changes(changes, json=json, dry_run=dry_run)


def verify(
    name: Name,
    topics: Topics = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only the last records of each partition.")] = None,
    source: Source = None,
    source_config: SourceConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Compare the mirrors with the source, byte for byte, while both clusters run.

    Example: `barnabas links verify paris --last 100000`
    """

    async def command(admin: AsyncAdmin) -> Any:
        from barnabas.client.admin import AsyncAdmin as Admin
        from barnabas.client.admin.links import MirrorAction
        from barnabas.client.links.cutover import require_link
        from barnabas.client.links.verifying import verify as compare
        from barnabas.core.ids import TopicPartition

        link = (await require_link(admin, name)).link
        planned = await admin.alter_mirrors(name, MirrorAction.STOP, topics or (), validate_only=True)
        partitions = [
            TopicPartition(change.topic, index)
            for change in planned
            if change.error is None
            for index in range(change.partitions)
        ]
        settings = _source_settings(link, source, source_config)
        async with Admin(settings) as theirs:
            return [found async for found in compare(theirs, admin, partitions, last)]

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([{**asdict(one), "partition": str(one.partition)} for one in found])
    else:
        print_comparisons(found)
    if not all(one.is_equal for one in found):
        fail("the mirrors differ from the source")


def drill(
    name: Name,
    topics: Topics = None,
    source: Source = None,
    without_source: Annotated[bool, typer.Option("--without-source", help="As if the source were gone.")] = False,
    source_config: SourceConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Report what a failover would do now, without changing anything: lag and loss, and where each group would go on.

    Exits with 1 if a failover would not go well.

    Example: `barnabas links drill paris`
    """

    async def command(admin: AsyncAdmin) -> Any:
        from barnabas.client.admin import AsyncAdmin as Admin
        from barnabas.client.links.cutover import require_link
        from barnabas.client.links.drill import drill as report_on

        if without_source:
            return await report_on(admin, None, name, topics or ())
        link = (await require_link(admin, name)).link
        async with Admin(_source_settings(link, source, source_config)) as theirs:
            return await report_on(admin, theirs, name, topics or ())

    report = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(asdict(report))
    else:
        print_drill(report)
    if report.problems:
        fail(f"{len(report.problems)} problems; see above")


def _source_settings(link: Link, source: str | None, source_config: str | None) -> dict[str, object]:
    """The settings of a client of the source. The brokers' own passwords are not shown to clients."""
    settings = read_properties(source_config) if source_config else dict(link.client)
    hidden = sorted(key for key, value in settings.items() if value == "(hidden)")
    if hidden:
        fail(f"the source needs {', '.join(hidden)}: give client settings with --source-config", EXIT_USAGE)
    settings.pop("client.id", None)
    return with_bootstrap(source or link.bootstrap_servers, settings)
