"""Shell: `kafka-replica-verification`: reads all replicas of topics at once, and prints where they differ."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.cli.kafka.cluster.replica_comparison import ReplicaRecords, compare
from barnabas.cli.kafka.stopping import until_signal
from barnabas.cli.output import EXIT_FAILED, fail, note
from barnabas.cli.session import run_admin
from barnabas.core.errors import KafkaError
from barnabas.core.ids import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.client.admin import AsyncAdmin

_DEBUGGING_REPLICA_ID: Final = -2
"""Followers serve the fetches of this replica id, as those of consumers."""
_RESPONSE_BYTES_MAX: Final = 52_428_800


def build_parser() -> Parser:
    parser = Parser(
        "kafka-replica-verification",
        "Validate that all replicas for a set of topics have the same data.",
        bootstrap=False,
    )
    parser.add_argument("--broker-list", "--bootstrap-server", required=True, metavar="HOST:PORT", dest="broker_list")
    parser.add_argument("--fetch-size", type=int, default=1024 * 1024, metavar="BYTES", help="of each partition")
    parser.add_argument("--max-wait-ms", type=int, default=1_000)
    parser.add_argument("--topics-include", default=".*", metavar="REGEX", help="several with commas between them")
    parser.add_argument("--time", type=int, default=-1, help="where to begin: ms, or -1 latest, -2 earliest")
    parser.add_argument("--report-interval-ms", type=int, default=30_000)
    return parser


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    try:
        wanted = re.compile(options.topics_include.strip().replace(",", "|").replace(" ", ""))
    except re.error:
        parser.error(f"{options.topics_include} is an invalid regex")

    async def command(admin: AsyncAdmin) -> None:
        verification = _Verification(admin, options)
        await verification.begin(wanted)
        _say("verification process is started")
        with until_signal() as stop:
            await verification.run()
        stop.exit()

    run_admin(options.broker_list, command)


def _say(text: str) -> None:
    emit(f"{datetime.now():%Y-%m-%d %H:%M:%S},{datetime.now().microsecond // 1000:03d}: {text}")


class _Verification:
    """Fetches the partitions from all replicas, compares, and reports the greatest lag in each interval."""

    def __init__(self, admin: AsyncAdmin, options: argparse.Namespace) -> None:
        self._admin = admin
        self._options = options
        self._offsets: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._by_broker: dict[int, list[TopicPartition]] = defaultdict(list)

    async def begin(self, wanted: re.Pattern[str]) -> None:
        admin = self._admin
        names = [t.name for t in await admin.list_topics(include_internal=True) if wanted.fullmatch(t.name)]
        if not names:
            fail("No topics found. --topics-include, if specified, filters out all topics, or there is no topic.")
        for name, topic in (await admin.describe_topics(names)).items():
            if isinstance(topic, KafkaError):
                raise KafkaError(topic.code, f"topic {name}: {topic}")
            self._topic_ids[name] = topic.topic_id
            for part in topic.partitions:
                self._offsets[part.topic_partition] = 0
                for replica in part.replicas:
                    self._by_broker[replica].append(part.topic_partition)
        found = await admin.list_offsets(dict.fromkeys(self._offsets, self._options.time))
        for partition, answer in found.items():
            if isinstance(answer, KafkaError):
                raise KafkaError(answer.code, f"{partition}: {answer}")
            self._offsets[partition] = max(answer.offset, 0)

    async def run(self) -> None:
        clock = asyncio.get_running_loop()
        reported = clock.time()
        while True:
            worst = await self._round()
            if (clock.time() - reported) * 1000 > self._options.report_interval_ms:
                reported = clock.time()
                lag, partition = worst
                _say(
                    f"max lag is {lag} for partition {partition} at offset {self._offsets[partition]} among "
                    f"{len(self._offsets)} partitions"
                )

    async def _round(self) -> tuple[int, TopicPartition]:
        """Compare all partitions once. Returns the greatest lag, and its partition."""
        brokers = list(self._by_broker)
        fetched = await asyncio.gather(*(self._fetch(broker) for broker in brokers))
        worst: tuple[int, TopicPartition] | None = None
        for partition, offset in self._offsets.items():
            replicas = {
                broker: answers.get(partition, ReplicaRecords(-1, b""))
                for broker, answers in zip(brokers, fetched, strict=True)
                if partition in self._by_broker[broker]
            }
            found = compare(partition, offset, replicas)
            for difference in found.differences:
                _say(difference)
            if found.is_fatal:
                raise SystemExit(EXIT_FAILED)
            self._offsets[partition] = found.next_offset
            lag = found.high_watermark - found.next_offset
            if worst is None or lag > worst[0]:
                worst = (lag, partition)
        assert worst is not None
        return worst

    async def _fetch(self, broker: int) -> dict[TopicPartition, ReplicaRecords]:
        """What a broker returns for its partitions; nothing if the broker does not answer."""
        from barnabas.protocol.wire.messages.fetch import (
            FetchPartition,
            FetchRequest,
            FetchResponse,
            FetchTopic,
            ReplicaState,
        )

        options, names = self._options, {topic_id: name for name, topic_id in self._topic_ids.items()}
        topics: dict[str, FetchTopic] = {}
        for partition in self._by_broker[broker]:
            name = partition.topic
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=self._topic_ids[name]))
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=self._offsets[partition],
                    partition_max_bytes=options.fetch_size,
                )
            )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=_DEBUGGING_REPLICA_ID),
            max_wait_ms=options.max_wait_ms,
            min_bytes=1,
            max_bytes=_RESPONSE_BYTES_MAX,
            topics=list(topics.values()),
        )
        try:
            response: FetchResponse = await self._admin.cluster.send(broker, request)
        except KafkaError as error:
            note(f"broker {broker}: {error}")
            await asyncio.sleep(options.max_wait_ms / 1000)
            return {}
        answers: dict[TopicPartition, ReplicaRecords] = {}
        for answered in response.responses:
            name = names.get(answered.topic_id, answered.topic)
            for data in answered.partitions:
                if data.error_code:
                    note(f"broker {broker}: {name}-{data.partition_index}: {KafkaError(data.error_code)}")
                    continue
                assert data.records is None or isinstance(data.records, (bytes, bytearray, memoryview))
                place = TopicPartition(name, data.partition_index)
                answers[place] = ReplicaRecords(data.high_watermark, data.records or b"")
        return answers
