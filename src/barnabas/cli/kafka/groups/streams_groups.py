"""Shell: `kafka-streams-groups`: --list, --describe, --delete, --reset-offsets, --delete-offsets of streams groups
(KIP-1071). Barnabas's brokers have no such groups: the tool is for clusters with brokers of Apache Kafka.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, emit_columns
from barnabas.cli.kafka.groups.group_options import add_group_options
from barnabas.cli.kafka.groups.reset_targets import add_reset_targets, reset_target
from barnabas.cli.output import EXIT_FAILED, note
from barnabas.cli.session import run_admin
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.offset_resets import ResetTarget
    from barnabas.client.admin.streams_groups import StreamsGroupDescription, StreamsMember, StreamsTasks

NO_STREAMS_GROUPS: Final = (
    "The brokers have no streams groups (KIP-1071): Apache Kafka has them since 4.1, Barnabas has not. Kafka Streams "
    "works here with its default, group.protocol=classic; kafka-consumer-groups shows the groups of such applications."
)


def build_parser() -> Parser:
    parser = Parser(
        "kafka-streams-groups",
        "List, describe, delete or reset the groups of Kafka Streams applications with group.protocol=streams.",
    )
    add_group_options(parser)
    parser.add_argument("--input-topic", action="append", default=[], help="TOPIC or TOPIC:0,1")
    parser.add_argument("--all-input-topics", action="store_true")
    parser.add_argument("--delete-internal-topic", action="append", default=[], metavar="TOPIC")
    parser.add_argument("--delete-all-internal-topics", action="store_true")
    parser.add_argument("--export", action="store_true", help="print the new offsets as lines of CSV")
    add_reset_targets(parser)
    return parser


def check(options: argparse.Namespace, parser: Parser) -> ResetTarget | None:
    """Reject combinations that Kafka's tool rejects; return the target of a reset."""
    if not options.list and not options.group and not options.all_groups:
        parser.error("--group or --all-groups is required")
    if options.delete_internal_topic and not options.reset_offsets:
        parser.error("--delete-internal-topic is for --reset-offsets")
    if options.delete_all_internal_topics and not (options.reset_offsets or options.delete):
        parser.error("--delete-all-internal-topics is for --reset-offsets and --delete")
    if options.delete_offsets:
        if len(options.group) != 1:
            parser.error("--delete-offsets needs exactly one --group")
        if not options.input_topic and not options.all_input_topics:
            parser.error("--delete-offsets needs --input-topic or --all-input-topics")
    if not options.reset_offsets:
        return None
    if options.dry_run == options.execute:
        parser.error("--reset-offsets needs one of --dry-run and --execute")
    if (options.delete_internal_topic or options.delete_all_internal_topics) and not options.execute:
        parser.error("internal topics are deleted with --execute only")
    if not options.input_topic and not options.all_input_topics and not options.from_file:
        parser.error("--reset-offsets needs --input-topic, --all-input-topics or --from-file")
    return reset_target(options, parser)


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    # The command line is checked before any request is sent.
    target = check(options, parser)

    async def command(admin: AsyncAdmin) -> int:
        if options.list:
            await list_groups(admin, options)
            return 0
        groups = await describe_all(admin, options)
        if options.describe:
            for group in groups:
                await show(admin, group, options)
            return 0
        if options.delete:
            return await delete(admin, groups, topics_too=options.delete_all_internal_topics)
        if target is None:
            return await delete_offsets(admin, groups[0], options.input_topic)
        return await reset(admin, groups, options, target)

    if code := run_admin(options.bootstrap_server, command, client_settings(options)):
        raise SystemExit(code)


async def list_groups(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    states = options.state.split(",") if options.state else ()
    found = [g for g in await admin.list_groups(states=states, types=["streams"]) if g.type == "streams"]
    if options.state is None:
        for group in found:
            emit(group.group_id)
    else:
        emit_columns([["GROUP", "STATE"], *([g.group_id, g.state.value] for g in found)])


async def describe_all(admin: AsyncAdmin, options: argparse.Namespace) -> list[StreamsGroupDescription]:
    """The groups that the options name. Raises the KafkaError of the first group that cannot be described."""
    from barnabas.client.admin.streams_groups import describe_streams_groups

    names = options.group
    if options.all_groups:
        names = [g.group_id for g in await admin.list_groups(types=["streams"]) if g.type == "streams"]
    found = await describe_streams_groups(admin.cluster, names, deadline=admin.cluster.deadline(options.timeout))
    groups = []
    for name, group in found.items():
        if isinstance(group, KafkaError):
            if group.code is ErrorCode.UNSUPPORTED_VERSION:
                raise KafkaError(group.code, NO_STREAMS_GROUPS)
            raise KafkaError(group.code, f"Streams group '{name}': {group}")
        groups.append(group)
    return groups


async def show(admin: AsyncAdmin, group: StreamsGroupDescription, options: argparse.Namespace) -> None:
    verbose = options.verbose
    if not group.members:
        note(f"\nStreams group '{group.group_id}' has no active members.")
    emit("")
    if options.state is not None:
        brokers = {b.broker_id: f"{b.host}:{b.port}" for b in (await admin.describe_cluster()).brokers}
        coordinator = f"{brokers.get(group.coordinator, '-')} ({group.coordinator})"
        epochs = [str(group.group_epoch), str(group.assignment_epoch)] if verbose else []
        heading = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] if verbose else []
        row = [group.group_id, coordinator, group.state.value, *epochs, str(len(group.members))]
        emit_columns([["GROUP", "COORDINATOR (ID)", "STATE", *heading, "#MEMBERS"], row])
    elif options.members:
        emit_columns(_members(group, verbose=verbose))
    else:
        emit_columns(await _offsets(admin, group, verbose=verbose))


def _members(group: StreamsGroupDescription, *, verbose: bool) -> list[list[str]]:
    if not verbose:
        rows = [["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]]
        return rows + [
            [group.group_id, m.member_id, m.process_id, m.client_id, _assignments(m.tasks)] for m in group.members
        ]
    rows = [["GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH", "MEMBER", "MEMBER-PROTOCOL", "MEMBER-EPOCH"]]
    rows[0] += ["PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    return rows + [_verbose_member(group, member) for member in group.members]


def _verbose_member(group: StreamsGroupDescription, m: StreamsMember) -> list[str]:
    target = _assignments(m.target, "TARGET-")
    assignments = " ".join(part for part in (_assignments(m.tasks), target) if part)
    protocol = "classic" if m.is_classic else "streams"
    cells = [group.group_id, str(group.assignment_epoch), str(m.topology_epoch), m.member_id, protocol]
    return [*cells, str(m.member_epoch), m.process_id, m.client_id, assignments]


def _assignments(tasks: StreamsTasks, prefix: str = "") -> str:
    kinds = (("ACTIVE", tasks.active), ("STANDBY", tasks.standby), ("WARMUP", tasks.warmup))
    parts = []
    for kind, found in kinds:
        if found:
            listed = "; ".join(f"{name}:[{','.join(map(str, numbers))}]" for name, numbers in found)
            parts.append(f"{prefix}{kind}: {listed};")
    return " ".join(parts)


async def _offsets(admin: AsyncAdmin, group: StreamsGroupDescription, *, verbose: bool) -> list[list[str]]:
    from barnabas.client.values import EARLIEST, LATEST, OffsetAndMetadata, OffsetAndTimestamp

    committed = await admin.list_group_offsets(group.group_id)
    partitions = sorted({*committed, *await _partitions(admin, group.read_topics)})
    starts = await admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, LATEST))
    columns = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET"] if verbose else []
    rows = [["GROUP", "TOPIC", "PARTITION", *columns, "OFFSET-LAG"]]
    for p in partitions:
        start, end, offset = starts[p], ends[p], committed.get(p)
        if not isinstance(end, OffsetAndTimestamp) or not isinstance(start, OffsetAndTimestamp):
            continue  # the topic was deleted
        known = offset if isinstance(offset, OffsetAndMetadata) and offset.offset >= 0 else None
        position = start.offset if known is None else known.offset
        cells: Sequence[Any] = ()
        if verbose:
            epoch = -1 if known is None else known.leader_epoch
            cells = ("-" if known is None else position, "-" if epoch < 0 else epoch, end.offset)
        lag = max(0, end.offset - position)
        rows.append([str(cell) for cell in (group.group_id, p.topic, p.partition, *cells, lag)])
    return rows


async def _partitions(admin: AsyncAdmin, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of those topics that exist."""
    described = await admin.describe_topics(sorted(topics))
    return [p.topic_partition for t in described.values() if not isinstance(t, KafkaError) for p in t.partitions]


async def delete(admin: AsyncAdmin, groups: list[StreamsGroupDescription], *, topics_too: bool) -> int:
    errors = {g: e for g, e in (await admin.delete_groups([g.group_id for g in groups])).items() if e is not None}
    done = [g for g in groups if g.group_id not in errors]
    if done:
        listed = ", ".join(f"'{g.group_id}'" for g in done)
        emit(f"Deletion of requested streams groups ({listed}) was successful.")
    if errors:
        emit("\nError: Deletion of some streams groups failed:")
        for name, error in errors.items():
            emit(f"* Group '{name}' could not be deleted due to: {error}")
    failed = bool(errors)
    for group in done if topics_too else ():
        failed |= await _delete_internal(admin, group, group.internal_topics)
    return EXIT_FAILED if failed else 0


async def _delete_internal(admin: AsyncAdmin, group: StreamsGroupDescription, topics: Iterable[str]) -> bool:
    """Delete internal topics of a group; True if one of them could not be deleted."""
    failed = False
    for topic, error in (await admin.delete_topics(sorted(topics))).items():
        if error is None:
            emit(f"Deleted internal topic '{topic}' of streams group '{group.group_id}'.")
        elif error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            failed = True
            emit(f"* Internal topic '{topic}' of streams group '{group.group_id}' could not be deleted due to: {error}")
    return failed


async def delete_offsets(admin: AsyncAdmin, group: StreamsGroupDescription, topics: list[str]) -> int:
    from barnabas.client.admin.offset_resets import select_partitions

    named = topics or sorted(group.source_topics)
    partitions = await select_partitions(admin, group.group_id, named) if named else []
    answers = await admin.delete_group_offsets(group.group_id, partitions)
    if any(answers.values()):
        emit("Encountered some partition-level error, see the follow-up details.")
    else:
        emit(f"Request succeeded for deleting offsets from group {group.group_id}.")
    rows = [["TOPIC", "PARTITION", "STATUS"]]
    rows += [[p.topic, str(p.partition), "Successful" if e is None else f"Error: {e}"] for p, e in answers.items()]
    emit_columns(rows)
    return EXIT_FAILED if any(answers.values()) else 0


async def reset(
    admin: AsyncAdmin, groups: list[StreamsGroupDescription], options: argparse.Namespace, target: ResetTarget
) -> int:
    from barnabas.client.admin.offset_resets import plan_reset

    rows = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]]
    failed = False
    for group in groups:
        name = group.group_id
        if group.members:
            raise ValueError(
                f"Offsets can only be reset if the group '{name}' is inactive, but its state is {group.state.value}: "
                "stop all instances of the application first."
            )
        unknown = set(options.delete_internal_topic) - group.internal_topics
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))}: not an internal topic of streams group '{name}'.")
        topics = options.input_topic or sorted(group.source_topics)
        if not topics and target.kind != "file":
            emit(f"Streams group '{name}' has no input topics: nothing to reset.")
            continue
        plan = await plan_reset(admin, name, topics, target)
        if options.execute:
            for partition, error in (
                await admin.alter_group_offsets(name, {row.partition: row.new for row in plan})
            ).items():
                if error is not None:
                    raise KafkaError(error.code, f"{partition}: {error}")
            doomed = group.internal_topics if options.delete_all_internal_topics else options.delete_internal_topic
            failed |= await _delete_internal(admin, group, doomed)
        rows += [[name, r.partition.topic, str(r.partition.partition), str(r.new)] for r in plan]
    if options.export:
        for row in rows[1:]:
            emit(",".join(row[1:]))
    else:
        emit("")
        emit_columns(rows)
    return EXIT_FAILED if failed else 0
