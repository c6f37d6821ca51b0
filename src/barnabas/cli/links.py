"""Shell: `barnabas links`: byte-exact mirrors of other clusters' topics: create, watch, pause, fail over, verify."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.links_text import print_changes, print_comparisons, print_described, print_drill, print_links
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run_admin, with_bootstrap

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.links import Link, MirrorAction, MirrorChange

app = noun(
    "Cluster links: mirrors of another cluster's topics, with the same offsets and bytes. Commands go to the cluster "
    "that has the mirrors."
)

Name = Annotated[str, typer.Argument(help="The link.", metavar="LINK")]
Topics = Annotated[
    list[str] | None,
    typer.Argument(help="Regular expressions of the topics; without any, all of the link.", metavar="[TOPIC]..."),
]
Source = Annotated[
    str | None,
    typer.Option("--source", metavar="HOST:PORT", help="The source cluster; by default the link's bootstrap servers."),
]
SourceConfig = Annotated[
    str | None, typer.Option("--source-config", metavar="FILE", help="Client settings for the source.")
]
Wait = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the mirrors.")]


def _many(help_text: str) -> Any:
    return typer.Option(help=help_text + " Repeatable.")


@app.command()
def create(
    name: Name,
    source: Annotated[str, typer.Option("--source", metavar="HOST:PORT", help="Brokers of the source cluster.")],
    topics: Annotated[list[str] | None, _many("Mirror the topics that this regular expression matches.")] = None,
    exclude: Annotated[list[str] | None, _many("But not those that this one matches.")] = None,
    groups: Annotated[
        list[str] | None, _many("Copy the offsets of the groups that this regular expression matches.")
    ] = None,
    groups_exclude: Annotated[list[str] | None, _many("But not of those that this one matches.")] = None,
    acls: Annotated[list[str] | None, _many("Copy ACLs: type;name;operation;permission;principal.")] = None,
    source_config: SourceConfig = None,
    config: Annotated[list[str] | None, _many("A setting mirror.*=VALUE.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Create a link. The brokers connect to the source, and mirror what the patterns match, also topics created later.

    Example: `barnabas links create paris --source kafka-1:9092 --topics 'orders.*' --groups '.*'`
    """
    from barnabas.client.admin.links import Link

    client = {key: str(value) for key, value in read_properties(source_config).items() if key != "bootstrap.servers"}
    link = Link(
        name,
        source,
        client,
        tuple(topics or ()),
        tuple(exclude or ()),
        tuple(groups or ()),
        tuple(groups_exclude or ()),
        tuple(acls or ()),
        parse_settings(config),
    )

    async def command(admin: AsyncAdmin) -> Link:
        return await admin.create_link(link, validate_only=dry_run)

    stored = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(asdict(stored))
        return
    note(f"link {name} {'can be' if dry_run else 'is'} created; the source is cluster {stored.source_cluster_id}")
    if not stored.topics:
        note(f"It has no patterns: `barnabas links start {name} TOPIC` makes mirrors.")


@app.command()
def alter(
    name: Name,
    source: Source = None,
    topics: Annotated[list[str] | None, _many("The new patterns of topics.")] = None,
    exclude: Annotated[list[str] | None, _many("The new patterns of excluded topics.")] = None,
    groups: Annotated[list[str] | None, _many("The new patterns of groups.")] = None,
    groups_exclude: Annotated[list[str] | None, _many("The new patterns of excluded groups.")] = None,
    acls: Annotated[list[str] | None, _many("The new ACL rules.")] = None,
    source_config: SourceConfig = None,
    config: Annotated[list[str] | None, _many("A setting mirror.*=VALUE.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    command_config: CommandConfig = None,
) -> None:
    """Change a link. What is not given stays as it is. Mirrors continue with the new settings.

    Example: `barnabas links alter paris --topics 'orders.*' --topics 'payments.*'`
    """
    client = {key: str(value) for key, value in read_properties(source_config).items() if key != "bootstrap.servers"}
    given = {
        "bootstrap_servers": source,
        "client": client or None,
        "topics": topics and tuple(topics),
        "topics_exclude": exclude and tuple(exclude),
        "groups": groups and tuple(groups),
        "groups_exclude": groups_exclude and tuple(groups_exclude),
        "acls": acls and tuple(acls),
    }

    async def command(admin: AsyncAdmin) -> Link:
        from barnabas.client.links.cutover import require_link

        link = (await require_link(admin, name)).link
        changes: dict[str, Any] = {key: value for key, value in given.items() if value}
        changes["settings"] = {**link.settings, **parse_settings(config)}
        return await admin.alter_link(replace(link, **changes), validate_only=dry_run)

    stored = run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"link {name} {'can be changed' if dry_run else f'is changed (version {stored.version})'}")


@app.command("list")
def list_links(
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP, json: Json = False, command_config: CommandConfig = None
) -> None:
    """List the links: source, mirrors by state, lag.

    Example: `barnabas links list`
    """

    async def command(admin: AsyncAdmin) -> Any:
        return await admin.describe_links(), await admin.describe_mirrors()

    links, statuses = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json([asdict(link) for link in links.values()])
    else:
        print_links(links, statuses)


@app.command()
def describe(
    name: Name,
    failed: Annotated[bool, typer.Option("--failed", help="Only partitions that are FAILED.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show a link and its mirror partitions: state, lag, when the source last answered, and what is wrong.

    Example: `barnabas links describe paris`
    """

    async def command(admin: AsyncAdmin) -> Any:
        from barnabas.client.links.cutover import require_link

        return await require_link(admin, name), await admin.describe_mirrors([name])

    link, statuses = run_admin(bootstrap_server, command, read_properties(command_config))
    if failed:
        statuses = [status for status in statuses if status.state == "FAILED"]
        link = replace(link, mirrors=tuple(mirror for mirror in link.mirrors if mirror.state == "FAILED"))
    if json:
        print_json({**asdict(link), "partitions": [asdict(status) for status in statuses]})
    else:
        print_described(link, statuses)


@app.command()
def start(
    name: Name,
    topics: Topics = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Make topics of the source mirrors here, also those that were stopped (failback).

    A topic that took writes after it was stopped loses the records that the source does not have; the brokers save them
    in mirror-tails in their log directories first.

    Example: `barnabas links start paris orders`
    """
    from barnabas.client.admin.links import MirrorAction

    _change(name, MirrorAction.START, topics, bootstrap_server, dry_run, json, command_config)


@app.command()
def pause(
    name: Name,
    topics: Topics = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Stop fetching from the source for a while. The topics remain mirrors and take no writes.

    Example: `barnabas links pause paris`
    """
    from barnabas.client.admin.links import MirrorAction

    _change(name, MirrorAction.PAUSE, topics, bootstrap_server, dry_run, json, command_config)


@app.command()
def resume(
    name: Name,
    topics: Topics = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Continue paused mirrors.

    Example: `barnabas links resume paris`
    """
    from barnabas.client.admin.links import MirrorAction

    _change(name, MirrorAction.RESUME, topics, bootstrap_server, dry_run, json, command_config)


@app.command()
def recover(
    name: Name,
    topics: Topics = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Try FAILED mirrors again now, after the reason was mended.

    Example: `barnabas links recover paris orders`
    """
    from barnabas.client.admin.links import MirrorAction

    _change(name, MirrorAction.RECOVER, topics, bootstrap_server, dry_run, json, command_config)


@app.command()
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


@app.command()
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
    _print_changes(changes, json=json, dry_run=dry_run)


def _change(
    name: str,
    action: MirrorAction,
    topics: list[str] | None,
    bootstrap_server: str,
    dry_run: bool,
    json: bool,
    command_config: str | None,
) -> None:
    async def command(admin: AsyncAdmin) -> list[MirrorChange]:
        return await admin.alter_mirrors(name, action, topics or (), validate_only=dry_run)

    changes = run_admin(bootstrap_server, command, read_properties(command_config))
    _print_changes(changes, json=json, dry_run=dry_run)


def _print_changes(changes: list[MirrorChange], *, json: bool, dry_run: bool) -> None:
    if json:
        print_json([asdict(change) for change in changes])
    else:
        print_changes(changes, dry_run=dry_run)
    failures = [change for change in changes if change.error is not None]
    if failures:
        fail(f"{len(failures)} of {len(changes)} topics could not be changed")


@app.command()
def reverse(
    name: Name,
    source: Annotated[
        str, typer.Option("--source", metavar="HOST:PORT", help="This cluster, as the other one reaches it.")
    ],
    other: Annotated[str, typer.Option("--to", metavar="HOST:PORT", help="The cluster that becomes the mirror.")],
    link: Annotated[
        str | None, typer.Option("--link", help="The name of the link there; by default LINK-reverse.")
    ] = None,
    topics: Topics = None,
    yes: Yes = False,
    source_config: SourceConfig = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    command_config: CommandConfig = None,
) -> None:
    """After a failover, mirror back: the former source becomes a mirror of this cluster.

    What the former source has and this cluster has not is cut off there; its brokers save it in mirror-tails first.
    Afterwards, `links promote` on the other cluster moves the work back.

    Example: `barnabas links reverse paris --source here:9092 --to kafka-1:9092`
    """
    if not dry_run:
        confirm(yes, f"Let the cluster at {other} mirror this one, and cut off what this one does not have?")

    async def here(admin: AsyncAdmin) -> Any:
        from barnabas.client.links.cutover import require_link

        return await require_link(admin, name)

    described = run_admin(bootstrap_server, here, read_properties(command_config))
    stopped = sorted({m.topic for m in described.mirrors if m.state == "STOPPED" and m.topic is not None})
    if not stopped:
        fail(f"link {name} has no stopped mirrors: fail it over first (`barnabas links failover {name}`)")
    wanted = topics or stopped
    back = replace(
        described.link,
        name=link or f"{name}-reverse",
        bootstrap_servers=source,
        client={key: str(value) for key, value in read_properties(source_config).items()},
        source_cluster_id=None,
    )

    async def there(admin: AsyncAdmin) -> list[MirrorChange]:
        from barnabas.client.admin.links import MirrorAction

        if back.name not in await admin.describe_links([back.name]):
            await admin.create_link(back, validate_only=dry_run)
            if dry_run:
                return []
        return await admin.alter_mirrors(back.name, MirrorAction.START, wanted, validate_only=dry_run)

    changes = run_admin(other, there, read_properties(source_config))
    note(f"link {back.name} on {other} mirrors {', '.join(wanted)}")
    _print_changes(changes, json=False, dry_run=dry_run)


@app.command()
def delete(
    name: Name,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    dry_run: DryRun = False,
    yes: Yes = False,
    command_config: CommandConfig = None,
) -> None:
    """Delete a link whose topics are all stopped. The topics stay. A failback needs the link: delete it later.

    Example: `barnabas links delete paris --yes`
    """
    if not dry_run:
        confirm(yes, f"Delete link {name}? What was mirrored up to which offset is forgotten.")

    async def command(admin: AsyncAdmin) -> Link:
        return await admin.delete_link(name, validate_only=dry_run)

    run_admin(bootstrap_server, command, read_properties(command_config))
    note(f"link {name} {'can be' if dry_run else 'is'} deleted")


@app.command()
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


@app.command()
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
