"""Shell: `barnabas groups`: consumer groups, their members and lag, and resetting their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.cli.completing import groups as complete_groups
from barnabas.cli.options import Bootstrap, CommandConfig, DryRun, Json, Yes, noun
from barnabas.cli.output import EXIT_USAGE, confirm, fail, note, print_json, print_table
from barnabas.cli.session import DEFAULT_BOOTSTRAP, read_properties, run_admin
from barnabas.cli.watch.why import groups_why
from barnabas.client.admin.offset_resets import ResetTarget, describe_lag, plan_reset
from barnabas.client.explanations.words import counted

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin

app = noun("Groups: consumers that share a topic's partitions, and the offsets that they have committed.")

app.command("why")(groups_why)

GroupName = Annotated[str, typer.Argument(help="The group id.", metavar="GROUP", autocompletion=complete_groups)]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", "-t", help="TOPIC or TOPIC:0,1,2; repeatable. Default: all topics.")
]


@app.command("list")
def list_groups(
    state: Annotated[list[str] | None, typer.Option(help="Only groups in this state, e.g. Stable.")] = None,
    kind: Annotated[list[str] | None, typer.Option("--type", help="classic, consumer or share.")] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """List all groups.

    Example: `barnabas groups list --state Stable`
    """

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        listings = await admin.list_groups(states=state or (), types=kind or ())
        return [
            {"group": g.group_id, "type": g.type, "protocol": g.protocol_type, "state": g.state.value} for g in listings
        ]

    groups = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(groups)
    else:
        rows = [(g["group"], g["state"], g["type"], g["protocol"]) for g in groups]
        print_table(["GROUP", "STATE", "TYPE", "PROTOCOL"], rows, empty="no groups")


@app.command()
def describe(
    group: GroupName,
    members: Annotated[bool, typer.Option("--members", help="Show the members instead of the offsets.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Show a group's state, its members, and the committed offset and lag of each partition.

    Example: `barnabas groups describe billing`
    """
    from barnabas.core.errors import KafkaError

    async def command(admin: AsyncAdmin) -> dict[str, Any]:
        described = (await admin.describe_groups([group]))[group]
        if isinstance(described, KafkaError):
            raise described
        return {
            "group": group,
            "state": described.state.value,
            "type": described.type,
            "assignor": described.assignor,
            "coordinator": described.coordinator,
            "members": [
                {
                    "member": m.member_id,
                    "client": m.client_id,
                    "host": m.client_host,
                    "instance": m.group_instance_id,
                    "partitions": sorted(str(p) for p in m.assignment),
                }
                for m in described.members
            ],
            "offsets": await describe_lag(admin, described),
        }

    found = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(found)
        return
    note(
        f"{group}: {found['state']}, {counted(len(found['members']), 'member')}, coordinator {found['coordinator']}"
        + (f", assignor {found['assignor']}" if found["assignor"] else "")
    )
    if members:
        rows = [(m["member"], m["client"], m["host"], m["instance"], m["partitions"]) for m in found["members"]]
        print_table(["MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS"], rows, empty="no members")
        return
    print_table(
        ["TOPIC", "PARTITION>", "COMMITTED>", "END>", "LAG>", "CLIENT"],
        [(o["topic"], o["partition"], o["committed"], o["end"], o["lag"], o["client"]) for o in found["offsets"]],
    )


@app.command("reset-offsets")
def reset_offsets(
    group: GroupName,
    topic: Topics = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="earliest, latest, current, an offset, +N or -N, a time (2026-11-20T10:00:00Z), or PT1H ago."
        ),
    ] = None,
    from_file: Annotated[str | None, typer.Option(help="A CSV of topic,partition,offset.")] = None,
    dry_run: DryRun = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: Json = False,
    command_config: CommandConfig = None,
) -> None:
    """Set the committed offsets of a group that has no members.

    Example: `barnabas groups reset-offsets billing --topic orders --to earliest --dry-run`
    """
    if (to is None) == (from_file is None):
        fail(
            ("give the new position: --to earliest | latest | OFFSET | +N | TIME | DURATION, or --from-file"),
            EXIT_USAGE,
        )
    target = ResetTarget.from_file(from_file) if from_file else ResetTarget.parse(to or "")

    async def command(admin: AsyncAdmin) -> list[dict[str, Any]]:
        plan = await plan_reset(admin, group, topic or [], target)
        if not dry_run:
            results = await admin.alter_group_offsets(group, {row.partition: row.new for row in plan})
            for partition, error in results.items():
                if error is not None:
                    raise type(error)(error.code, f"{partition}: {error}")
        return [
            {"topic": r.partition.topic, "partition": r.partition.partition, "from": r.old, "to": r.new} for r in plan
        ]

    rows = run_admin(bootstrap_server, command, read_properties(command_config))
    if json:
        print_json(rows)
    else:
        print_table(
            ["TOPIC", "PARTITION>", "FROM>", "TO>"], [(r["topic"], r["partition"], r["from"], r["to"]) for r in rows]
        )
        note("nothing was changed (dry run)" if dry_run else f"{counted(len(rows), 'offset')} reset")


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(help="Group ids.", metavar="GROUP...", autocompletion=complete_groups)],
    yes: Yes = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups that have no members, with their offsets.

    Example: `barnabas groups delete billing --yes`
    """
    confirm(yes, f"delete {', '.join(groups)} and their offsets?")

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
    """Delete a group's committed offsets of topics to which no member subscribes.

    Example: `barnabas groups delete-offsets billing --topic orders:0,1`
    """
    from barnabas.client.admin.offset_resets import select_partitions

    if not topic:
        fail("give at least one --topic", EXIT_USAGE)

    async def command(admin: AsyncAdmin) -> None:
        partitions = await select_partitions(admin, group, topic)
        for partition, error in (await admin.delete_group_offsets(group, partitions)).items():
            if error is not None:
                raise type(error)(error.code, f"{partition}: {error}")
            note(f"deleted the offset of {partition}")

    run_admin(bootstrap_server, command, read_properties(command_config))
