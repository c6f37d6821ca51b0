"""Shell: `barnabas share-groups`: share groups, their members, and how many records each partition has left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.completing import groups as complete_groups
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.client.explanations.words import counted

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

app = noun(
    "Share groups: members that fetch records from the same partitions, each record "
    "delivered to one of them, as from a queue."
)

GroupName = Annotated[str, typer.Argument(help="The group id.", metavar="GROUP", autocompletion=complete_groups)]
Topics = Annotated[list[str] | None, typer.Option("--topic", "-t", help="A topic; repeatable.")]

TIMEOUT_MS = 30_000


@app.command("list")
def list_groups(
    state: Annotated[list[str] | None, typer.Option(help="Only groups in this state: Empty or Stable.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List share groups.

    Example: `barnabas share-groups list`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        listings = await admin.list_groups(states=state or (), types=["share"])
        return [{"group": g.group_id, "state": g.state.value} for g in listings]

    groups = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(groups)
    else:
        print_table(["GROUP", "STATE"], [(g["group"], g["state"]) for g in groups], empty="no share groups")


@app.command()
def describe(
    group: GroupName,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the offsets.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show a share group's state, its members, and the start offset and lag of each partition.

    Example: `barnabas share-groups describe jobs`
    """

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        return await description(admin, group)

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
        return
    note(f"{group}: {found['state']}, {counted(len(found['members']), 'member')}, coordinator {found['coordinator']}")
    if members:
        rows = [(m["member"], m["client"], m["host"], m["partitions"]) for m in found["members"]]
        print_table(["MEMBER", "CLIENT", "HOST", "PARTITIONS"], rows, empty="no members")
        return
    print_table(
        ["TOPIC", "PARTITION>", "START>", "LAG>"],
        [(o["topic"], o["partition"], o["start"], o["lag"]) for o in found["offsets"]],
    )


async def description(admin: AsyncAdmin, group: str) -> dict[str, Any]:
    """A share group with its members and offsets, as a JSON object. Raises KafkaError."""
    from barnabas.client.admin.share_groups import list_share_group_offsets
    from barnabas.core.errors import ErrorCode, KafkaError

    described = (await admin.describe_groups([group]))[group]
    if isinstance(described, KafkaError):
        raise described
    if described.type != "share":
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{group} is a {described.type} group, not a share group.")
    offsets = await list_share_group_offsets(admin.cluster, group, deadline=admin.cluster.deadline(TIMEOUT_MS))
    rows = []
    for partition, offset in sorted(offsets.items()):
        if isinstance(offset, KafkaError):
            raise offset
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "start": offset.start_offset,
                "lag": offset.lag,
                "leader_epoch": offset.leader_epoch,
            }
        )
    return {
        "group": group,
        "state": described.state.value,
        "coordinator": described.coordinator,
        "assignor": described.assignor,
        "members": [
            {
                "member": m.member_id,
                "client": m.client_id,
                "host": m.client_host,
                "epoch": m.member_epoch,
                "partitions": sorted(str(p) for p in m.assignment),
            }
            for m in described.members
        ],
        "offsets": rows,
    }


@app.command("reset-offsets")
def reset_offsets(
    group: GroupName,
    to: Annotated[str, typer.Option("--to", help="earliest, latest, or a time (2026-11-20T10:00:00Z, PT1H ago).")],
    topic: Topics = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Set the start offsets of a share group without members. The state of records in delivery is deleted.

    Example: `barnabas share-groups reset-offsets jobs --topic orders --to earliest --dry-run`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        return await reset(admin, group, topic or [], to, dry_run=dry_run)

    rows = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(rows)
    else:
        print_table(
            ["TOPIC", "PARTITION>", "FROM>", "TO>"], [(r["topic"], r["partition"], r["from"], r["to"]) for r in rows]
        )
        note("nothing was changed (dry run)" if dry_run else f"{counted(len(rows), 'offset')} reset")


async def reset(admin: AsyncAdmin, group: str, topics: list[str], to: str, *, dry_run: bool) -> list[dict[str, Any]]:
    """Plan the reset and, unless it is a dry run, apply it. Raises KafkaError and ValueError."""
    from barnabas.client.admin.offset_resets import ResetTarget
    from barnabas.client.admin.share_groups import ShareOffset, alter_share_group_offsets, list_share_group_offsets
    from barnabas.client.values import EARLIEST, LATEST
    from barnabas.core.errors import KafkaError

    target = ResetTarget.parse(to)
    if target.kind not in ("earliest", "latest", "time"):
        raise ValueError("a share group can be reset to earliest, latest, or a time")
    deadline = admin.cluster.deadline(TIMEOUT_MS)
    known = await list_share_group_offsets(admin.cluster, group, deadline=deadline)
    partitions = list(known)
    if topics:
        views = await admin.describe_topics(topics)
        partitions = []
        for view in views.values():
            if isinstance(view, KafkaError):
                raise view
            partitions += [p.topic_partition for p in view.partitions]
    timestamp = {"earliest": EARLIEST, "latest": LATEST}.get(target.kind, target.number)
    found = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    rows, moves = [], {}
    for partition in sorted(partitions):
        result, end, before = found[partition], ends[partition], known.get(partition)
        if isinstance(result, KafkaError):
            raise result
        if isinstance(end, KafkaError):
            raise end
        moves[partition] = result.offset if result.offset >= 0 else end.offset
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "from": before.start_offset if isinstance(before, ShareOffset) else None,
                "to": moves[partition],
            }
        )
    if not dry_run:
        for partition, error in (
            await alter_share_group_offsets(admin.cluster, group, moves, deadline=deadline)
        ).items():
            if error is not None:
                raise type(error)(error.code, f"{partition}: {error}")
    return rows


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(help="Group ids.", metavar="GROUP...", autocompletion=complete_groups)],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete share groups that have no members, with the delivery state of their records.

    Example: `barnabas share-groups delete jobs --yes`
    """
    confirm(yes, f"delete {', '.join(groups)} and the delivery state of their records?")

    async def command(admin: AsyncAdmin) -> None:
        for name, error in (await admin.delete_groups(groups)).items():
            if error is not None:
                raise type(error)(error.code, f"group {name}: {error}")
            note(f"deleted {name}")

    run_admin(bootstrap_server, command, read_properties(command_config))


@app.command("delete-offsets")
def delete_offsets(
    group: GroupName,
    topic: Topics = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete the offsets of topics in a share group without members.

    Example: `barnabas share-groups delete-offsets jobs --topic orders`
    """
    if not topic:
        fail("give at least one --topic", EXIT_USAGE)

    async def command(admin: AsyncAdmin) -> None:
        from barnabas.client.admin.share_groups import delete_share_group_offsets

        deadline = admin.cluster.deadline(TIMEOUT_MS)
        results = await delete_share_group_offsets(admin.cluster, group, topic, deadline=deadline)
        for name, error in results.items():
            if error is not None:
                raise type(error)(error.code, f"{name}: {error}")
            note(f"deleted the offsets of {name}")

    run_admin(bootstrap_server, command, read_properties(command_config))
