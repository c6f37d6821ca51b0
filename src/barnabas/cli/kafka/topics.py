"""Shell: `kafka-topics`: --list, --describe, --create, --alter, --delete."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from barnabas.cli.kafka.arguments import Parser, client_settings, emit, split_pairs
from barnabas.cli.output import EXIT_FAILED
from barnabas.cli.session import run_admin
from barnabas.client.errors import BrokerUnreachableError
from barnabas.core.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def build_parser() -> Parser:
    parser = Parser("kafka-topics", "Create, delete, describe, or change a topic.")
    actions = parser.add_mutually_exclusive_group(required=True)
    for action in ("list", "describe", "create", "alter", "delete"):
        actions.add_argument(f"--{action}", action="store_true")
    parser.add_argument("--topic", help="a name; for --list, --describe and --delete a regular expression")
    parser.add_argument("--topic-id", help="for --describe: the topic of this id")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--replication-factor", type=int, default=-1)
    parser.add_argument("--replica-assignment", help="broker:broker,broker:broker: the replicas of each partition")
    parser.add_argument("--config", action="append", metavar="NAME=VALUE")
    parser.refuse("--delete-config", why="topic configs are changed with kafka-configs --alter --delete-config")
    parser.add_argument("--if-exists", action="store_true")
    parser.add_argument("--if-not-exists", action="store_true")
    parser.add_argument("--exclude-internal", action="store_true")
    parser.add_argument("--under-replicated-partitions", action="store_true")
    parser.add_argument("--unavailable-partitions", action="store_true")
    parser.add_argument("--under-min-isr-partitions", action="store_true")
    parser.add_argument("--at-min-isr-partitions", action="store_true")
    parser.add_argument("--topics-with-overrides", action="store_true")
    parser.add_argument("--partition-size-limit-per-response", type=int)
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if (options.create or options.alter or options.delete) and not options.topic:
        parser.error("--topic is required")
    if options.config and not options.create:
        parser.error("--config goes with --create; topic configs are changed with kafka-configs --alter --add-config")
    if options.alter and options.partitions is None:
        parser.error("--alter needs --partitions")
    configs = split_pairs(options.config, parser)

    async def command(admin: AsyncAdmin) -> None:
        if options.list:
            for name in await matching(admin, options):
                emit(name)
        elif options.describe:
            await describe(admin, options)
        elif options.create:
            await create(admin, options, configs)
        elif options.alter:
            await alter(admin, options)
        else:
            await delete(admin, options)

    async def reported(admin: AsyncAdmin) -> None:
        try:
            await command(admin)
        except BrokerUnreachableError:
            raise
        except KafkaError as error:
            emit(f"Error while executing topic command : {error}")
            raise SystemExit(EXIT_FAILED) from None

    run_admin(options.bootstrap_server, reported, client_settings(options))


async def matching(admin: AsyncAdmin, options: argparse.Namespace) -> list[str]:
    """The names of the topics that match `--topic`. No match is an error unless --if-exists is given, as in Kafka's
    tool.
    """
    listings = await admin.list_topics(include_internal=not options.exclude_internal)
    if options.topic_id:
        from barnabas.core.ids import uuid_from_text

        wanted = uuid_from_text(options.topic_id)
        names = [t.name for t in listings if t.topic_id == wanted]
        if not names:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"Topic with id '{options.topic_id}' does not exist")
        return names
    if not options.topic:
        return [t.name for t in listings]
    names = []
    for pattern in options.topic.split(","):
        found = [t.name for t in listings if re.fullmatch(pattern, t.name)]
        if not found and not options.if_exists and not options.list:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{pattern}' does not exist as expected")
        names += found
    return names


async def describe(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    from barnabas.client.values import ConfigResource, ConfigSource
    from barnabas.core.ids import uuid_to_text

    names = await matching(admin, options)
    views = await admin.describe_topics(names) if names else {}
    configs = await admin.describe_configs([ConfigResource.topic(name) for name in names]) if names else {}
    for name in names:
        view = views[name]
        if isinstance(view, KafkaError):
            raise view
        entries = configs[ConfigResource.topic(name)]
        if isinstance(entries, KafkaError):
            raise entries
        overrides = [f"{e.name}={e.value}" for e in entries.values() if e.source is not ConfigSource.DEFAULT]
        if options.topics_with_overrides and not overrides:
            continue
        partitions = [p for p in view.partitions if _wanted(p, options, entries)]
        filtered = len(partitions) < len(view.partitions) or _filters(options)
        if not filtered or options.topics_with_overrides:
            replicas = len(view.partitions[0].replicas) if view.partitions else 0
            emit(
                f"Topic: {name}\tTopicId: {uuid_to_text(view.topic_id)}\tPartitionCount: {len(view.partitions)}"
                f"\tReplicationFactor: {replicas}\tConfigs: {','.join(sorted(overrides))}"
            )
        if options.topics_with_overrides:
            continue
        for p in partitions:
            leader = str(p.leader) if p.leader >= 0 else "none"
            emit(
                f"\tTopic: {name}\tPartition: {p.partition}\tLeader: {leader}"
                f"\tReplicas: {_numbers(p.replicas)}\tIsr: {_numbers(p.isr)}\tElr: \tLastKnownElr: "
            )


def _filters(options: argparse.Namespace) -> bool:
    return bool(
        options.under_replicated_partitions
        or options.unavailable_partitions
        or options.under_min_isr_partitions
        or options.at_min_isr_partitions
    )


def _wanted(partition: Any, options: argparse.Namespace, configs: Any) -> bool:
    if not _filters(options):
        return True
    least = int(configs["min.insync.replicas"].value)
    return bool(
        (options.under_replicated_partitions and len(partition.isr) < len(partition.replicas))
        or (options.unavailable_partitions and partition.leader < 0)
        or (options.under_min_isr_partitions and len(partition.isr) < least)
        or (options.at_min_isr_partitions and len(partition.isr) == least)
    )


def _numbers(values: Any) -> str:
    return ",".join(str(v) for v in values)


def _assignment(text: str) -> dict[int, list[int]]:
    return {i: [int(b) for b in part.split(":")] for i, part in enumerate(text.split(","))}


async def create(admin: AsyncAdmin, options: argparse.Namespace, configs: dict[str, str]) -> None:
    from barnabas.client.values import NewTopic

    if "." in options.topic or "_" in options.topic:
        emit(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    assignment = _assignment(options.replica_assignment) if options.replica_assignment else None
    partitions = -1 if assignment or options.partitions is None else options.partitions
    topic = NewTopic(options.topic, partitions, -1 if assignment else options.replication_factor, configs, assignment)
    result = (await admin.create_topics([topic]))[options.topic]
    if isinstance(result, KafkaError):
        if options.if_not_exists and result.code is ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        raise result
    emit(f"Created topic {options.topic}.")


async def alter(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    assignments = None
    for name in await matching(admin, options):
        if options.replica_assignment:
            view = (await admin.describe_topics([name]))[name]
            if isinstance(view, KafkaError):
                raise view
            every = _assignment(options.replica_assignment)
            assignments = {name: [every[i] for i in range(view.partition_count, len(every))]}
        error = (await admin.create_partitions({name: options.partitions}, assignments=assignments))[name]
        if error is not None:
            raise error


async def delete(admin: AsyncAdmin, options: argparse.Namespace) -> None:
    names = await matching(admin, options)
    for name, error in (await admin.delete_topics(names) if names else {}).items():
        if error is not None and not (options.if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise KafkaError(error.code, f"{name}: {error}")
