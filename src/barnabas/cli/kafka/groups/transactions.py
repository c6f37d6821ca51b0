"""Shell: `kafka-transactions`: list and describe transactions, find hanging ones, abort them (KIP-664)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.cli.groups.transactions import open_transaction, partitions_of, producers_of
from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.session import run_admin
from barnabas.core.clock import SystemClock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    options = _parser().parse_args(_shared_first(sys.argv[1:]))
    commands = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": _abort,
        "find-hanging": _find_hanging,
        "forceTerminateTransaction": _force_terminate,
    }
    run_admin(
        options.bootstrap_server, lambda admin: commands[options.command](admin, options), client_settings(options)
    )


def _shared_first(arguments: list[str]) -> list[str]:
    """Move the options that all commands share to the front, because users may write them before or after the
    command.
    """
    shared, others = [], []
    left = iter(arguments)
    for argument in left:
        if argument in ("--bootstrap-server", "--command-config"):
            shared += [argument, next(left, "")]
        else:
            others.append(argument)
    return shared + others


def _parser() -> Parser:
    parser = Parser("kafka-transactions", "This tool is used to analyze the transactional state of producers.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=argparse.ArgumentParser)
    listing = commands.add_parser("list", help="list transactions")
    listing.add_argument("--duration-filter", type=int, default=-1)
    listing.add_argument("--transactional-id-pattern")
    describe = commands.add_parser("describe", help="describe the state of an active transactional-id")
    describe.add_argument("--transactional-id", required=True)
    producers = commands.add_parser("describe-producers", help="describe the states of active producers of a partition")
    producers.add_argument("--broker-id", type=int)
    _add_partition(producers)
    abort = commands.add_parser("abort", help="abort a hanging transaction (requires administrative privileges)")
    _add_partition(abort)
    abort.add_argument("--start-offset", type=int)
    abort.add_argument("--producer-id", type=int)
    abort.add_argument("--producer-epoch", type=int)
    abort.add_argument("--coordinator-epoch", type=int)
    hanging = commands.add_parser("find-hanging", help="find hanging transactions")
    hanging.add_argument("--broker-id", type=int)
    hanging.add_argument("--max-transaction-timeout", type=int, default=15, help="in minutes")
    hanging.add_argument("--topic")
    hanging.add_argument("--partition", type=int)
    force = commands.add_parser("forceTerminateTransaction", help="abort the ongoing transaction of a transactional id")
    force.add_argument("--transactional-id", required=True)
    return parser


def _add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partition", type=int, required=True)


async def _list(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    found = await admin.list_transactions(
        longer_than_ms=options.duration_filter, pattern=options.transactional_id_pattern
    )
    rows = [(t.transactional_id, str(t.coordinator), str(t.producer_id), t.state) for t in found]
    _table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)


async def _describe(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    name = options.transactional_id
    found = (await admin.describe_transactions([name]))[name]
    if isinstance(found, KafkaError):
        raise found
    started = found.started_ms >= 0
    heading = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    row = (
        str(found.coordinator),
        name,
        str(found.producer_id),
        str(found.producer_epoch),
        found.state,
        str(found.timeout_ms),
        str(found.started_ms) if started else "None",
        str(SystemClock().now_ms() - found.started_ms) if started else "None",
        ",".join(str(tp) for tp in found.partitions),
    )
    _table(heading, [row])


async def _describe_producers(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    heading = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    found = await producers_of(admin, TopicPartition(options.topic, options.partition))
    rows = [
        (
            str(p.producer_id),
            str(p.producer_epoch),
            str(p.coordinator_epoch),
            str(p.last_sequence),
            str(p.last_timestamp_ms),
            str(p.open_since) if p.open_since >= 0 else "None",
        )
        for p in found
    ]
    _table(heading, rows)


async def _abort(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    tp = TopicPartition(options.topic, options.partition)
    if options.start_offset is None and None in (
        options.producer_id,
        options.producer_epoch,
        options.coordinator_epoch,
    ):
        raise ValueError(
            "The transaction to abort must be identified either with --start-offset, or with --producer-id, "
            "--producer-epoch, and --coordinator-epoch"
        )
    found = open_transaction(await producers_of(admin, tp), options.start_offset, options.producer_id)
    if found is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Could not find any open transactions starting at offset {options.start_offset} on partition {tp}",
        )
    await admin.abort_transaction(tp, found)


async def _find_hanging(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    if options.topic is None and options.broker_id is None:
        raise ValueError(
            "The find-hanging command requires either --topic or --broker-id to limit the scope of the search"
        )
    now_ms = SystemClock().now_ms()
    partitions = await partitions_of(admin, [options.topic] if options.topic else None, options.broker_id)
    if options.partition is not None:
        partitions = [tp for tp in partitions if tp.partition == options.partition]
    found = await admin.find_hanging_transactions(
        partitions, older_than_ms=options.max_transaction_timeout * 60_000, now_ms=now_ms
    )
    heading = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    )
    rows = [
        (
            h.partition.topic,
            str(h.partition.partition),
            str(h.producer.producer_id),
            str(h.producer.producer_epoch),
            str(h.producer.coordinator_epoch),
            str(h.producer.open_since),
            str(h.producer.last_timestamp_ms),
            str((now_ms - h.producer.last_timestamp_ms) // 60_000),
        )
        for h in found
    ]
    _table(heading, rows)


async def _force_terminate(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    await admin.fence_producer(options.transactional_id)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as their widest cell, with a tab after each cell (`ToolsUtils.prettyPrintTable`)."""
    lines = [heading, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heading))]
    for line in lines:
        emit("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))
