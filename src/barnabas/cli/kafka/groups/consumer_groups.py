"""Shell: `kafka-consumer-groups`: --list, --describe, --delete, --reset-offsets, --delete-offsets."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, emit_columns
from barnabas.cli.kafka.groups.reset_targets import add_reset_targets, reset_target
from barnabas.cli.output import EXIT_FAILED, fail, note
from barnabas.cli.session import run_admin
from barnabas.client.admin.offset_resets import ResetTarget, describe_lag, plan_reset, select_partitions
from barnabas.core.errors import KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.values import GroupDescription


def build_parser() -> Parser:
    parser = Parser("kafka-consumer-groups", "List, describe, delete or reset consumer groups.", bootstrap=False)
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT", help="the brokers to connect to first")
    parser.add_argument("--command-config", metavar="FILE", help="a .properties file with client settings")
    actions = parser.add_mutually_exclusive_group(required=True)
    for action in ("list", "describe", "delete", "reset-offsets", "delete-offsets"):
        actions.add_argument(f"--{action}", action="store_true")
    actions.add_argument("--validate-regex", metavar="REGEX")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--all-groups", action="store_true")
    parser.add_argument("--topic", action="append", default=[], help="TOPIC or TOPIC:0,1")
    parser.add_argument("--all-topics", action="store_true")
    parser.add_argument("--timeout", type=int, default=30_000)
    parser.add_argument("--state", nargs="?", const="", help="with --list: show or filter by state; with --describe")
    parser.add_argument("--type", nargs="?", const="")
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--offsets", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--execute", action="store_true")
    parser.add_argument("--export", action="store_true")
    add_reset_targets(parser)
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if options.validate_regex is not None:
        _validate_regex(options.validate_regex)
        return
    if not options.bootstrap_server:
        parser.error("--bootstrap-server is required")
    if not options.list and not options.group and not options.all_groups:
        parser.error("--group or --all-groups is required")
    # The command line is checked before any request is sent.
    target = reset_target(options, parser) if options.reset_offsets else None

    async def command(admin: AsyncAdmin) -> None:
        if options.list:
            await list_groups(admin, options)
            return
        groups = options.group or [g.group_id for g in await admin.list_groups()]
        if options.describe:
            await describe(admin, groups, options)
        elif options.delete:
            await delete(admin, groups)
        elif target is None:
            await delete_offsets(admin, groups[0], options.topic)
        else:
            await reset(admin, groups, options, target)

    run_admin(options.bootstrap_server, command, client_settings(options))


def _validate_regex(pattern: str) -> None:
    """Check that a regular expression can be used for a subscription, and print the result."""
    try:
        re.compile(pattern)
    except re.error as error:
        fail(f"The regular expression {pattern!r} is not valid: {error}")
    emit(f"The regular expression {pattern!r} is valid.")


async def list_groups(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    states = options.state.split(",") if options.state else ()
    types = options.type.split(",") if options.type else ()
    rows = []
    for group in await admin.list_groups(states=states, types=types):
        row = [group.group_id]
        row += [group.type.capitalize()] if options.type is not None else []
        row += [group.state.value] if options.state is not None else []
        rows.append(row)
    if options.state is None and options.type is None:
        for row in rows:
            emit(row[0])
        return
    heading = ["GROUP"] + (["TYPE"] if options.type is not None else [])
    emit_columns([heading + (["STATE"] if options.state is not None else []), *rows])


async def describe(admin: AsyncAdmin, groups: list[str], options: argparse.Namespace) -> None:
    described = await admin.describe_groups(groups)
    addresses = {b.broker_id: f"{b.host}:{b.port}" for b in (await admin.describe_cluster()).brokers}
    for name in groups:
        group = described[name]
        if isinstance(group, KafkaError):
            raise KafkaError(group.code, f"Consumer group '{name}': {group}")
        if not group.members:
            note(f"\nConsumer group '{name}' has no active members.")
        emit("")
        if options.state is not None:
            coordinator = f"{addresses.get(group.coordinator, '-')}  ({group.coordinator})"
            row = [name, coordinator, group.assignor or "-", group.state.value, str(len(group.members))]
            emit_columns([["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"], row])
        elif options.members:
            _members(group, verbose=options.verbose)
        else:
            await _offsets(admin, group)


def _members(group: GroupDescription, *, verbose: bool) -> None:
    rows = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"] + (["ASSIGNMENT"] if verbose else [])]
    for m in group.members:
        row = [group.group_id, m.member_id, _host(m.client_host), m.client_id, str(len(m.assignment))]
        rows.append(row + ([_grouped(m.assignment)] if verbose else []))
    emit_columns(rows)


def _grouped(partitions: Any) -> str:
    topics: dict[str, list[int]] = {}
    for p in sorted(partitions):
        topics.setdefault(p.topic, []).append(p.partition)
    return ", ".join(f"{topic}({','.join(map(str, numbers))})" for topic, numbers in topics.items()) or "-"


async def _offsets(admin: AsyncAdmin, group: GroupDescription) -> None:
    columns = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    rows = [[*columns, "CONSUMER-ID", "HOST", "CLIENT-ID"]]
    for o in await describe_lag(admin, group):
        cells = [group.group_id, o["topic"], o["partition"], o["committed"], o["end"], o["lag"], o["member"]]
        cells += [_host(o["host"]), o["client"]]
        rows.append(["-" if cell is None else str(cell) for cell in cells])
    emit_columns(rows)


def _host(host: str | None) -> str:
    """The host with a slash in front: Java prints addresses so, and scripts expect the slash."""
    return "-" if host is None else host if host.startswith("/") else f"/{host}"


async def delete(admin: AsyncAdmin, groups: list[str]) -> None:
    errors = {g: e for g, e in (await admin.delete_groups(groups)).items() if e is not None}
    done = [g for g in groups if g not in errors]
    if done:
        listed = ", ".join(f"'{g}'" for g in done)
        emit(f"Deletion of requested consumer groups ({listed}) was successful.")
    if errors:
        emit("\nError: Deletion of some consumer groups failed:")
        for group, error in errors.items():
            emit(f"* Group '{group}' could not be deleted due to: {error}")
        raise SystemExit(EXIT_FAILED)


async def delete_offsets(admin: AsyncAdmin, group: str, topics: list[str]) -> None:
    partitions = await select_partitions(admin, group, topics)
    rows = [["TOPIC", "PARTITION", "STATUS"]]
    answers = await admin.delete_group_offsets(group, partitions)
    if any(answers.values()):
        emit("Encountered some partition-level error, see the follow-up details.\n")
    else:
        emit(f"Request succeeded for deleting offsets from group {group}.\n")
    rows += [[p.topic, str(p.partition), "Successful" if e is None else f"Error: {e}"] for p, e in answers.items()]
    emit_columns(rows)
    if any(answers.values()):
        raise SystemExit(EXIT_FAILED)


async def reset(admin: AsyncAdmin, groups: list[str], options: argparse.Namespace, target: ResetTarget) -> None:
    if not options.topic and not options.all_topics and target.kind != "file":
        raise ValueError("--reset-offsets needs --topic, --all-topics or --from-file")
    rows = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    if not options.execute and not options.dry_run and not options.export:
        note("WARN: No action will be performed as the --execute option is missing.")
    for group in groups:
        plan = await plan_reset(admin, group, options.topic, target)
        if options.export:
            for row in plan:
                emit(f"{row.partition.topic},{row.partition.partition},{row.new}")
            continue
        if options.execute:
            answers = await admin.alter_group_offsets(group, {row.partition: row.new for row in plan})
            for partition, error in answers.items():
                if error is not None:
                    raise KafkaError(error.code, f"{partition}: {error}")
        rows += [[group, r.partition.topic, str(r.partition.partition), str(r.new)] for r in plan]
    if not options.export:
        emit("")
        emit_columns(rows)
