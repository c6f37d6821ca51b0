"""Shell: `kafka-share-groups`: --list, --describe, --delete, --reset-offsets, --delete-offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from barnabas.cli.groups.share_groups import TIMEOUT_MS, description, reset
from barnabas.cli.kafka.arguments import Parser, client_settings, emit, emit_columns
from barnabas.cli.kafka.groups.group_options import add_group_options
from barnabas.cli.output import EXIT_FAILED
from barnabas.cli.session import run_admin

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def build_parser() -> Parser:
    parser = Parser("kafka-share-groups", "List, describe, delete or reset share groups.")
    add_group_options(parser)
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--all-topics", action="store_true")
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--to-earliest", action="store_true")
    targets.add_argument("--to-latest", action="store_true")
    targets.add_argument("--to-datetime")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if not options.list and not options.group and not options.all_groups:
        parser.error("--group or --all-groups is required")
    target = "earliest" if options.to_earliest else "latest" if options.to_latest else options.to_datetime
    if options.reset_offsets and target is None:
        parser.error("--reset-offsets needs one of --to-earliest, --to-latest, --to-datetime")
    if options.reset_offsets and not options.topic and not options.all_topics:
        parser.error("--reset-offsets needs --topic or --all-topics")
    if options.delete_offsets and not options.topic:
        parser.error("--delete-offsets needs --topic")

    async def command(admin: AsyncAdmin) -> None:
        if options.list:
            await list_groups(admin, options)
            return
        groups = options.group or [g.group_id for g in await admin.list_groups(types=["share"])]
        for group in groups:
            if options.describe:
                show(await description(admin, group), options)
            elif options.delete_offsets:
                await delete_offsets(admin, group, options.topic)
            elif options.reset_offsets:
                rows = await reset(admin, group, options.topic, target, dry_run=not options.execute)
                emit_columns([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]] + [_row(group, row) for row in rows])
        if options.delete:
            await delete(admin, groups)

    run_admin(options.bootstrap_server, command, client_settings(options))


def _row(group: str, row: dict[str, Any]) -> list[str]:
    return [group, row["topic"], str(row["partition"]), str(row["to"])]


async def list_groups(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    states = options.state.split(",") if options.state else ()
    found = await admin.list_groups(states=states, types=["share"])
    if options.state is None:
        for group in found:
            emit(group.group_id)
    else:
        emit_columns([["GROUP", "STATE"], *([g.group_id, g.state.value] for g in found)])


def show(group: dict[str, Any], options: argparse.Namespace) -> None:
    name, members = group["group"], group["members"]
    emit("")
    if options.state is not None:
        row = [name, str(group["coordinator"]), group["state"], str(len(members))]
        emit_columns([["GROUP", "COORDINATOR (ID)", "STATE", "#MEMBERS"], row])
        return
    if options.members:
        rows = [[name, m["member"], m["host"], m["client"], ",".join(m["partitions"]) or "-"] for m in members]
        emit_columns([["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "ASSIGNMENT"], *rows])
        return
    if not members:
        emit(f"Share group '{name}' has no active members.\n")
    columns = ["GROUP", "TOPIC", "PARTITION"] + (["LEADER-EPOCH"] if options.verbose else []) + ["START-OFFSET", "LAG"]
    rows = []
    for o in group["offsets"]:
        cells = [name, o["topic"], o["partition"], *([o["leader_epoch"]] if options.verbose else []), o["start"]]
        rows.append(["-" if cell is None else str(cell) for cell in (*cells, o["lag"])])
    emit_columns([columns, *rows])


async def delete(admin: AsyncAdmin, groups: list[str]) -> None:
    errors = {g: e for g, e in (await admin.delete_groups(groups)).items() if e is not None}
    done = [g for g in groups if g not in errors]
    if done:
        listed = ", ".join(f"'{g}'" for g in done)
        emit(f"Deletion of requested share groups ({listed}) was successful.")
    for group, error in errors.items():
        emit(f"Error: Deletion of some share groups failed:\n* Group '{group}' could not be deleted due to: {error}")
    if errors:
        raise SystemExit(EXIT_FAILED)


async def delete_offsets(admin: AsyncAdmin, group: str, topics: list[str]) -> None:
    from barnabas.client.admin.share_groups import delete_share_group_offsets

    results = await delete_share_group_offsets(
        admin.cluster, group, topics, deadline=admin.cluster.deadline(TIMEOUT_MS)
    )
    emit_columns(
        [["TOPIC", "STATUS"], *([topic, "Successful" if e is None else f"Error: {e}"] for topic, e in results.items())]
    )
    if any(results.values()):
        raise SystemExit(EXIT_FAILED)
