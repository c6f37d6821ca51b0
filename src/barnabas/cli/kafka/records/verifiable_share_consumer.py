"""Shell: `kafka-verifiable-share-consumer`: reads a topic as a share group, and prints records and acknowledgements as
JSON.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from barnabas.cli.kafka.arguments import Parser, client_settings
from barnabas.cli.kafka.records.verifiable_consumer import emit_record
from barnabas.cli.kafka.records.verifiable_events import emit_event
from barnabas.cli.kafka.stopping import until_signal
from barnabas.cli.output import note
from barnabas.cli.session import run
from barnabas.client.admin import AsyncAdmin
from barnabas.client.consumer.consumer import Record
from barnabas.client.share.consumer import AsyncShareConsumer
from barnabas.client.share.session import AcknowledgeType
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

_POLL_MS: Final = 200
_ACK_TYPES: Final = {kind.name.lower(): kind for kind in AcknowledgeType}


def build_parser() -> Parser:
    parser = Parser(
        "kafka-verifiable-share-consumer",
        "Consume a topic with a share group, and print events (received messages, offsets acknowledged) as JSON.",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-id", required=True, help="the share group")
    parser.add_argument("--max-messages", type=int, default=-1, help="-1: until the process is stopped")
    parser.add_argument("--verbose", action="store_true", help="print each record")
    parser.add_argument("--acknowledgement-mode", default="auto", type=str.lower, choices=["auto", "sync", "async"])
    parser.add_argument(
        "--ack-pattern",
        default="",
        help="accept,release,reject,renew: each record takes its offset's place in the cycle",
    )
    parser.add_argument("--offset-reset-strategy", default="", type=str.lower, help="earliest or latest, for the group")
    return parser


def main() -> None:
    parser = build_parser()
    if len(sys.argv) == 1:
        parser.print_help()
        return
    options = parser.parse_args()
    pattern = _pattern(options, parser)
    if options.offset_reset_strategy not in ("", "earliest", "latest"):
        parser.error("--offset-reset-strategy must be either 'earliest' or 'latest'")
    run(lambda: _consume(options, pattern))


def _pattern(options: argparse.Namespace, parser: Parser) -> list[AcknowledgeType]:
    words = [word.strip().lower() for word in options.ack_pattern.split(",")] if options.ack_pattern else []
    if unknown := [word for word in words if word not in _ACK_TYPES]:
        parser.error(f"--ack-pattern: {unknown[0]!r} is not one of {', '.join(_ACK_TYPES)}")
    if words and options.acknowledgement_mode == "auto":
        parser.error("--ack-pattern requires --acknowledgement-mode to be 'sync' or 'async', not 'auto'")
    if words and set(words) == {"renew"}:
        parser.error(
            "--ack-pattern must contain at least one non-RENEW type; a pattern of only 'renew' would re-deliver every "
            "record indefinitely without ever resolving it"
        )
    return [_ACK_TYPES[word] for word in words]


async def _consume(options: argparse.Namespace, pattern: list[AcknowledgeType]) -> None:
    settings = client_settings(options) | {"bootstrap.servers": options.bootstrap_server}
    reading = _Reading(options, pattern)
    consumer = AsyncShareConsumer(
        {
            **settings,
            "group.id": options.group_id,
            "share.acknowledgement.mode": "explicit" if pattern else "implicit",
        },
        on_acknowledged=reading.on_acknowledged,
    )
    async with consumer:
        await consumer.cluster.reach()
        with until_signal() as stop:
            emit_event("startup_complete")
            if options.offset_reset_strategy:
                await _set_reset_policy(settings, options.group_id, options.offset_reset_strategy)
            await reading.run(consumer)
        if stop.signal is not None:
            emit_event("shutdown_requested")
    emit_event("shutdown_complete")
    stop.exit()


async def _set_reset_policy(settings: dict[str, object], group: str, policy: str) -> None:
    from barnabas.client.values import ConfigChange, ConfigResource

    resource = ConfigResource.group(group)
    async with AsyncAdmin(settings) as admin:
        change = ConfigChange("share.auto.offset.reset", policy)
        results = await admin.incremental_alter_configs({resource: [change]})
    error = results[resource]
    if error is not None:
        raise error
    emit_event("offset_reset_strategy_set", offsetResetStrategy=policy)


class _Reading:
    """Reads until --max-messages records were acknowledged."""

    def __init__(self, options: argparse.Namespace, pattern: list[AcknowledgeType]) -> None:
        self._options = options
        self._pattern = pattern
        self._acknowledged = 0
        self._kinds: dict[tuple[TopicPartition, int], AcknowledgeType] = {}
        """The kind of acknowledgement of each record whose result is not known yet, with --ack-pattern."""
        self._places: dict[tuple[TopicPartition, int], int] = {}
        """The place in the pattern of each record that was renewed, with --ack-pattern."""

    async def run(self, consumer: AsyncShareConsumer) -> None:
        consumer.subscribe(self._options.topic)
        while not 0 <= self._options.max_messages <= self._acknowledged:
            records = await consumer.poll(_POLL_MS)
            if not records:
                continue
            self._count(consumer, records)
            if self._options.acknowledgement_mode == "sync":
                for partition, error in (await consumer.commit()).items():
                    if error is not None:
                        note(f"Failed to commit offset synchronously for topic partition: {partition}: {error}")

    def _count(self, consumer: AsyncShareConsumer, records: Sequence[Record]) -> None:
        summaries = []
        ordered = sorted(records, key=attrgetter("topic", "partition", "offset"))
        for partition, group in groupby(ordered, key=attrgetter("topic_partition")):
            part = list(group)
            for record in part if self._pattern else ():
                self._acknowledge(consumer, record)
            summaries.append(_summary(partition, [record.offset for record in part]))
            for record in part if self._options.verbose else ():
                emit_record(record)
        emit_event("records_consumed", count=len(records), partitions=summaries)

    def _acknowledge(self, consumer: AsyncShareConsumer, record: Record) -> None:
        place = (record.topic_partition, record.offset)
        index = self._places.setdefault(place, record.offset % len(self._pattern))
        kind = self._pattern[index]
        consumer.acknowledge(record, kind)
        self._kinds[place] = kind
        if kind is AcknowledgeType.RENEW:
            self._places[place] = (index + 1) % len(self._pattern)

    def on_acknowledged(self, partition: TopicPartition, offsets: frozenset[int], error: KafkaError | None) -> None:
        """Print the result of acknowledgements."""
        counts: Counter[str] = Counter()
        for offset in sorted(offsets):
            kind = self._kinds.pop((partition, offset), None)
            if kind is not None and error is None:
                counts[kind.name] += 1
                if kind is not AcknowledgeType.RENEW:
                    self._places.pop((partition, offset), None)
        fields: dict[str, object] = {"count": len(offsets), "partitions": [_summary(partition, sorted(offsets))]}
        fields["success"] = error is None
        if error is not None:
            fields["error"] = str(error)
        elif self._pattern:
            fields["ackTypeCounts"] = dict(counts)
        emit_event("offsets_acknowledged", **fields)
        if error is None:
            self._acknowledged += len(offsets)


def _summary(partition: TopicPartition, offsets: list[int]) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.partition, "count": len(offsets), "offsets": offsets}
