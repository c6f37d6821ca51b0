"""Shell: `kafka-verifiable-consumer`: reads a topic as a group, and prints rebalances, records and commits as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from barnabas.cli.kafka.arguments import Parser, check_deprecated_config
from barnabas.cli.kafka.records.verifiable_events import emit_event, text_of
from barnabas.cli.kafka.stopping import until_signal
from barnabas.cli.session import read_properties, run
from barnabas.client.consumer.consumer import AsyncConsumer, Record
from barnabas.client.consumer.coordinator import RebalanceListener
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition


def build_parser() -> Parser:
    parser = Parser(
        "kafka-verifiable-consumer",
        "Consume a topic, and print events (group rebalances, received messages, offsets committed) as JSON.",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-protocol", default="classic", help="classic or consumer")
    parser.add_argument("--group-remote-assignor", help="with --group-protocol consumer")
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--group-instance-id")
    parser.add_argument("--max-messages", type=int, default=-1, help="-1: until the process is stopped")
    parser.add_argument("--session-timeout", type=int, metavar="MS", help="with --group-protocol classic")
    parser.add_argument("--verbose", action="store_true", help="print each record")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--close-timeout", type=int, default=30_000, metavar="MS")
    parser.add_argument("--reset-policy", default="earliest", help="earliest, latest or none")
    parser.add_argument("--assignment-strategy", default="range", metavar="CLASS", help="with --group-protocol classic")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="as --command-config")
    return parser


def main() -> None:
    parser = build_parser()
    if len(sys.argv) == 1:
        parser.print_help()
        return
    options = parser.parse_args()
    check_deprecated_config(options, parser, "consumer")
    settings = _settings(options)
    run(lambda: _consume(settings, options))


def _settings(options: argparse.Namespace) -> dict[str, object]:
    settings: dict[str, object] = dict(read_properties(options.consumer_config or options.command_config))
    settings["group.protocol"] = options.group_protocol
    if options.group_protocol.lower() == "consumer":
        if options.group_remote_assignor is not None:
            settings["group.remote.assignor"] = options.group_remote_assignor
    else:
        settings["partition.assignment.strategy"] = options.assignment_strategy
    if options.session_timeout is not None:
        settings["session.timeout.ms"] = options.session_timeout
    if options.group_instance_id is not None:
        settings["group.instance.id"] = options.group_instance_id
    return {
        **settings,
        "group.id": options.group_id,
        "bootstrap.servers": options.bootstrap_server,
        "enable.auto.commit": options.enable_autocommit,
        "auto.offset.reset": options.reset_policy,
    }


async def _consume(settings: dict[str, object], options: argparse.Namespace) -> None:
    consumer = AsyncConsumer(settings)
    reading = _Reading(consumer, options)
    try:
        await consumer.cluster.reach()
        with until_signal() as stop:
            emit_event("startup_complete")
            await reading.run()
        if stop.signal is not None:
            emit_event("shutdown_requested")
    finally:
        await consumer.close(options.close_timeout)
    emit_event("shutdown_complete")
    if stop.signal is None:
        emit_event("shutdown_requested")  # Kafka's tool prints it in this order when it has read --max-messages
    stop.exit()


class _Rebalances(RebalanceListener):
    """Prints the partitions that are assigned and revoked."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Any:
        emit_event("partitions_assigned", partitions=_named(partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Any:
        emit_event("partitions_revoked", partitions=_named(partitions))


class _Reading:
    """Reads until --max-messages records were read, and commits after each poll."""

    def __init__(self, consumer: AsyncConsumer, options: argparse.Namespace) -> None:
        self._consumer = consumer
        self._topic: str = options.topic
        self._limit: int = options.max_messages
        self._commits: bool = not options.enable_autocommit
        self._verbose: bool = options.verbose
        self._consumed = 0

    def _is_finished(self) -> bool:
        return 0 <= self._limit <= self._consumed

    async def run(self) -> None:
        self._consumer.subscribe([self._topic], _Rebalances())
        while not self._is_finished():
            records = await self._consumer.poll(1_000)
            if not records:
                continue
            offsets = self._count(records)
            if self._commits:
                await self._commit(offsets)

    def _count(self, records: Sequence[Record]) -> dict[TopicPartition, int]:
        """Print what was read. Returns the offsets to commit."""
        offsets: dict[TopicPartition, int] = {}
        summaries = []
        ordered = sorted(records, key=attrgetter("topic", "partition", "offset"))
        for partition, group in groupby(ordered, key=attrgetter("topic_partition")):
            part = list(group)
            if self._limit >= 0:
                part = part[: self._limit - self._consumed]
            if not part:
                break
            offsets[partition] = part[-1].offset + 1
            summaries.append(
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "count": len(part),
                    "minOffset": part[0].offset,
                    "maxOffset": part[-1].offset,
                }
            )
            for record in part if self._verbose else ():
                emit_record(record)
            self._consumed += len(part)
        emit_event("records_consumed", count=len(records), partitions=summaries)
        return offsets

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        committed = [{"topic": p.topic, "partition": p.partition, "offset": at} for p, at in offsets.items()]
        try:
            await self._consumer.commit(offsets)
        except KafkaError as error:
            if error.code is ErrorCode.FENCED_INSTANCE_ID:
                raise
            emit_event("offsets_committed", offsets=committed, error=str(error), success=False)
        else:
            emit_event("offsets_committed", offsets=committed, success=True)


def emit_record(record: Record) -> None:
    """Print one record, for --verbose."""
    emit_event(
        "record_data",
        key=text_of(record.key),
        value=text_of(record.value),
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def _named(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": p.topic, "partition": p.partition} for p in sorted(partitions)]
