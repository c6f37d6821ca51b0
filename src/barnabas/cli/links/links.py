"""Shell: `barnabas links`: byte-exact mirrors of other clusters' topics: create, watch, pause, fail over, verify."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.links.cutover import drill, failover, promote, reverse, verify
from barnabas.cli.links.options import Name, Source, SourceConfig, Topics, many, report_changes, warn_of_plain_secrets
from barnabas.cli.links.text import print_described, print_links
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import confirm, note, print_json
from barnabas.cli.session import DEFAULT_BOOTSTRAP, parse_settings, read_properties, run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.links import Link, MirrorAction, MirrorChange

app = noun(
    "Cluster links: mirrors of another cluster's topics, with the same offsets and bytes. Commands go to the cluster "
    "that has the mirrors."
)


@app.command()
def create(
    name: Name,
    source: Annotated[str, typer.Option("--source", metavar="HOST:PORT", help="Brokers of the source cluster.")],
    topics: Annotated[list[str] | None, many("Mirror the topics that this regular expression matches.")] = None,
    exclude: Annotated[list[str] | None, many("But not those that this one matches.")] = None,
    groups: Annotated[
        list[str] | None, many("Copy the offsets of the groups that this regular expression matches.")
    ] = None,
    groups_exclude: Annotated[list[str] | None, many("But not of those that this one matches.")] = None,
    acls: Annotated[list[str] | None, many("Copy ACLs: type;name;operation;permission;principal.")] = None,
    source_config: SourceConfig = None,
    config: Annotated[list[str] | None, many("A setting mirror.*=VALUE.")] = None,
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

    warn_of_plain_secrets(client)
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
    topics: Annotated[list[str] | None, many("The new patterns of topics.")] = None,
    exclude: Annotated[list[str] | None, many("The new patterns of excluded topics.")] = None,
    groups: Annotated[list[str] | None, many("The new patterns of groups.")] = None,
    groups_exclude: Annotated[list[str] | None, many("The new patterns of excluded groups.")] = None,
    acls: Annotated[list[str] | None, many("The new ACL rules.")] = None,
    source_config: SourceConfig = None,
    config: Annotated[list[str] | None, many("A setting mirror.*=VALUE.")] = None,
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

    warn_of_plain_secrets(client)
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
    report_changes(changes, json=json, dry_run=dry_run)


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


for _command in (promote, failover, reverse, verify, drill):
    app.command()(_command)
