"""Shell: `kafka-streams-application-reset`: moves a stopped Kafka Streams application back to the start of its input,
and deletes the topics that it has created for itself.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.output import EXIT_FAILED, fail
from barnabas.cli.session import read_properties, run_admin
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.offset_resets import ResetTarget

_INTERNAL: Final = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)"
)
"""The names of topics that a Kafka Streams application creates, after its application.id."""


def build_parser() -> Parser:
    parser = Parser(
        "kafka-streams-application-reset",
        "Reset an application of Kafka Streams, so that it processes its data from scratch. Stop the application "
        "first, and delete its local state (KafkaStreams#cleanUp()) afterwards. Run with --dry-run before.",
        bootstrap=False,
    )
    parser.add_argument("--application-id", required=True)
    parser.add_argument("--bootstrap-server", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--input-topics", action="append", metavar="A,B", help="reset to the earliest offset, or else")
    parser.add_argument("--intermediate-topics", action="append", metavar="A,B", help="skipped to their ends")
    parser.add_argument("--internal-topics", action="append", metavar="A,B", help="delete these only")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to-offset", type=int)
    target.add_argument("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss")
    target.add_argument("--by-duration", metavar="PnDTnHnMnS")
    target.add_argument("--to-earliest", action="store_true")
    target.add_argument("--to-latest", action="store_true")
    target.add_argument("--from-file", metavar="FILE", help="lines of TOPIC,PARTITION,OFFSET")
    target.add_argument("--shift-by", type=int, metavar="N")
    config = parser.add_mutually_exclusive_group()
    config.add_argument("--command-config", metavar="FILE", help="a .properties file with client settings")
    config.add_argument("--config-file", metavar="FILE", help="the same as --command-config")
    parser.add_argument("--force", action="store_true", help="remove members that are still in the group")
    parser.add_argument("--dry-run", action="store_true")
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    try:
        target = _target(options)
    except ValueError as error:
        parser.error(str(error))
    settings = client_settings(options) | read_properties(options.config_file)
    settings.pop("bootstrap.servers", None)

    async def command(admin: AsyncAdmin) -> int:
        await _check_members(admin, options.application_id, force=options.force)
        reset = _Reset(admin, options)
        await reset.learn_topics()
        if options.dry_run:
            emit("----Dry run displays the actions which will be performed when running Streams Reset Tool----")
        code = await reset.offsets(target)
        await reset.delete_topics()
        return code

    if code := run_admin(options.bootstrap_server, command, settings):
        raise SystemExit(code)


def _target(options: argparse.Namespace) -> ResetTarget:
    from barnabas.client.admin.offset_resets import ResetTarget, parse_duration_ms, parse_time_ms

    if options.to_offset is not None:
        return ResetTarget("offset", options.to_offset)
    if options.shift_by is not None:
        return ResetTarget("shift", options.shift_by)
    if options.to_datetime is not None:
        return ResetTarget("time", parse_time_ms(options.to_datetime))
    if options.by_duration is not None:
        return ResetTarget("time", int(time.time() * 1000) - parse_duration_ms(options.by_duration))
    if options.from_file is not None:
        return ResetTarget.from_file(options.from_file)
    return ResetTarget("latest" if options.to_latest else "earliest")


async def _check_members(admin: AsyncAdmin, group: str, *, force: bool) -> None:
    """Exit if the application still runs. With `force`, remove its members from the group."""
    described = (await admin.describe_groups([group]))[group]
    if isinstance(described, KafkaError) or not described.members:
        return
    members = [member.member_id for member in described.members]
    if not force:
        fail(
            f"Consumer group '{group}' is still active and has following members: {_listed(members)}. Make sure to "
            "stop all running application instances before running the reset tool. You can use option '--force' "
            "to remove active members from the group."
        )
    emit(f"Force deleting all active members in the group: {group}")
    for member, error in (await admin.remove_group_members(group, members)).items():
        if error is not None:
            raise KafkaError(error.code, f"Removing the member {member} of group {group}: {error}")


def _listed(names: Iterable[object]) -> str:
    return f"[{', '.join(map(str, names))}]"


def _split(given: Sequence[str] | None) -> list[str]:
    return [name for part in given or () for name in part.split(",") if name]


class _Reset:
    """Resets the offsets of one application, and deletes its internal topics."""

    def __init__(self, admin: AsyncAdmin, options: argparse.Namespace) -> None:
        self._admin = admin
        self._group: str = options.application_id
        self._dry_run: bool = options.dry_run
        self._inputs = _split(options.input_topics)
        self._intermediates = _split(options.intermediate_topics)
        self._internals = _split(options.internal_topics)
        self._partitions: dict[str, int] = {}
        """The number of partitions of every topic of the cluster."""

    async def learn_topics(self) -> None:
        self._partitions = {t.name: t.partition_count for t in await self._admin.list_topics()}

    async def offsets(self, target: ResetTarget) -> int:
        """Reset the offsets. Returns the exit code: 1 if a topic does not exist."""
        if self._intermediates:
            emit("WARN: `--intermediate-topics` is deprecated and will be removed in a future release")
        if not self._inputs and not self._intermediates:
            emit("No input or intermediate topics specified. Skipping seek.")
            return 0
        if self._inputs:
            emit(f"Reset-offsets for input topics {_listed(self._inputs)}")
        if self._intermediates:
            emit(f"Seek-to-end for intermediate topics {_listed(self._intermediates)}")
        code = 0
        for kind, names in (("input", self._inputs), ("intermediate", self._intermediates)):
            if missing := [name for name in names if name not in self._partitions]:
                emit(f"Following {kind} topics are not found, skipping them")
                for name in missing:
                    emit(f"Topic: {name}")
                code = EXIT_FAILED
        inputs, intermediates = self._partitions_of(self._inputs), self._partitions_of(self._intermediates)
        if not inputs and not intermediates:
            return code
        moves: dict[TopicPartition, int] = {}
        if inputs:
            emit(f"Following input topics offsets will be reset to (for consumer group {self._group})")
            moves |= await self._positions(inputs, target)
            for partition in inputs:
                emit(f"Topic: {partition.topic} Partition: {partition.partition} Offset: {moves[partition]}")
        if intermediates:
            emit(f"Following intermediate topics offsets will be reset to end (for consumer group {self._group})")
            for partition in intermediates:
                emit(f"Topic: {partition.topic}")
            moves |= await self._at(intermediates, -1)
        if not self._dry_run:
            await self._commit(moves)
        emit("Done.")
        return code

    def _partitions_of(self, names: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(name, i) for name in dict.fromkeys(names) for i in range(self._partitions.get(name, 0))]

    async def _positions(self, partitions: list[TopicPartition], target: ResetTarget) -> dict[TopicPartition, int]:
        ends = await self._at(partitions, -1)
        if target.kind == "latest":
            return ends
        starts = await self._at(partitions, -2)
        if target.kind == "earliest":
            return starts
        if target.kind == "time":
            found = await self._at(partitions, target.number)
            for partition in partitions:
                if found[partition] < 0:
                    emit(
                        f"Partition {partition.partition} from topic {partition.topic} is empty, without a committed "
                        "record. Falling back to latest known offset."
                    )
                    found[partition] = ends[partition]
            return found
        if missing := [str(p) for p in partitions if target.kind == "file" and p not in target.offsets]:
            fail(
                f"The reset plan has no line for {', '.join(missing)}: add one for every partition of the input topics."
            )
        wanted = dict(target.offsets) if target.kind == "file" else dict.fromkeys(partitions, target.number)
        if target.kind == "shift":
            committed = await self._admin.list_group_offsets(self._group, partitions)
            for partition in partitions:
                answer = committed.get(partition)
                if isinstance(answer, KafkaError):
                    raise answer
                wanted[partition] += ends[partition] if answer is None or answer.offset < 0 else answer.offset
        return {p: _within(wanted[p], starts[p], ends[p]) for p in partitions}

    async def _at(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        offsets = {}
        for partition, answer in (await self._admin.list_offsets(dict.fromkeys(partitions, timestamp))).items():
            if isinstance(answer, KafkaError):
                raise KafkaError(answer.code, f"{partition}: {answer}")
            offsets[partition] = answer.offset
        return offsets

    async def _commit(self, moves: dict[TopicPartition, int]) -> None:
        for partition, error in (await self._admin.alter_group_offsets(self._group, moves)).items():
            if error is not None:
                raise KafkaError(error.code, f"Resetting {partition}: {error}")

    async def delete_topics(self) -> None:
        """Delete the application's internal topics, or those of --internal-topics."""
        outside = {*self._inputs, *self._intermediates}
        inferred = [
            name
            for name in sorted(self._partitions)
            if name not in outside and name.startswith(f"{self._group}-") and _INTERNAL.fullmatch(name)
        ]
        if self._internals and not set(self._internals) <= set(inferred):
            fail(
                "Invalid topic specified in the --internal-topics option. Ensure that the topics specified are all "
                "internal topics. Do a dry run without the --internal-topics option to see the list of all internal "
                "topics that can be deleted."
            )
        kind = "specified" if self._internals else "inferred"
        names = self._internals or inferred
        emit(f"Deleting {kind} internal topics {_listed(names)}")
        if not self._dry_run and names:
            failed = {n: e for n, e in (await self._admin.delete_topics(names)).items() if e is not None}
            if failed:
                fail("; ".join(f"deleting topic {name}: {error}" for name, error in failed.items()))
        emit("Done.")


def _within(offset: int, start: int, end: int) -> int:
    """The offset, limited to the records that the partition has. Prints the reason for a change, as Kafka's tool."""
    if offset >= end:
        emit(f"New offset ({offset}) is higher than latest offset. Value will be set to {end}")
        return end
    if offset <= start:
        emit(f"New offset ({offset}) is lower than earliest offset. Value will be set to {start}")
        return start
    return offset
