"""Shell: `kafka-get-offsets`: prints topic:partition:offset for a timestamp or for earliest, latest or
max-timestamp.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, client_settings, emit
from barnabas.cli.logs.logs import timestamp_of
from barnabas.cli.session import run_admin
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin


def main() -> None:
    parser = Parser("kafka-get-offsets", "Show topic-partition offsets.")
    parser.add_argument("--topic", help="a regular expression")
    parser.add_argument("--partitions", help="0,1,2")
    parser.add_argument("--topic-partitions", help="topic:0-3,other:1: patterns of topic and partitions")
    parser.add_argument("--time", default="-1", help="ms, or -1/latest, -2/earliest, -3/max-timestamp")
    parser.add_argument("--exclude-internal-topics", action="store_true")
    options = parser.parse_args()
    if options.topic_partitions and (options.topic or options.partitions):
        parser.error("--topic-partitions cannot be used with --topic or --partitions")
    try:
        timestamp = timestamp_of(options.time)
    except ValueError as error:
        parser.error(str(error))

    async def command(admin: AsyncAdmin) -> None:
        listings = await admin.list_topics(include_internal=not options.exclude_internal_topics)
        partitions = [
            TopicPartition(t.name, p)
            for t in listings
            for p in range(t.partition_count)
            if _wanted(t.name, p, options.topic, options.partitions, options.topic_partitions)
        ]
        if not partitions:
            reason = "Could not match any topic-partitions with the specified filters"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        results = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
        for partition, result in sorted(results.items()):
            if isinstance(result, KafkaError):
                raise KafkaError(result.code, f"{partition}: {result}")
            emit(f"{partition.topic}:{partition.partition}:{result.offset if result.offset >= 0 else ''}")

    run_admin(options.bootstrap_server, command, client_settings(options))


def _wanted(topic: str, partition: int, pattern: str | None, numbers: str | None, both: str | None) -> bool:
    if both:
        return any(_matches(rule, topic, partition) for rule in both.split(","))
    if pattern and not re.fullmatch(pattern, topic):
        return False
    if not pattern and topic in INTERNAL_TOPICS and numbers:
        return False
    return numbers is None or str(partition) in numbers.split(",")


def _matches(rule: str, topic: str, partition: int) -> bool:
    """Whether a partition matches one rule: `topic`, `topic:1`, `topic:1-3`, `topic:-3`, `topic:1-`, `:1`. The upper
    bound of a range is excluded.
    """
    name, _, numbers = rule.partition(":")
    if name and not re.fullmatch(name, topic):
        return False
    if not numbers:
        return True
    low, dash, high = numbers.partition("-")
    if not dash:
        return partition == int(low)
    return (not low or partition >= int(low)) and (not high or partition < int(high))
