"""Shell: `kafka-verifiable-producer`: writes the numbers 0, 1, 2, ... and prints for each whether it was
acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.cli.kafka.arguments import Parser, check_deprecated_config
from barnabas.cli.kafka.records.verifiable_events import emit_event, java_exception
from barnabas.cli.kafka.stopping import until_signal
from barnabas.cli.session import read_properties, run

if TYPE_CHECKING:
    from barnabas.client.producer.producer import AsyncProducer
    from barnabas.client.values import RecordMetadata


def build_parser() -> Parser:
    parser = Parser(
        "kafka-verifiable-producer",
        "Produce increasing integers to a topic, and print JSON on each send, so that it is visible from outside which "
        "messages have been acked and which have not.",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--max-messages", type=int, default=-1, help="-1: until the process is stopped")
    parser.add_argument("--throughput", type=int, default=-1, help="messages a second; -1 is unlimited")
    parser.add_argument("--acks", type=int, default=-1, choices=[0, 1, -1])
    parser.add_argument("--producer.config", dest="producer_config", metavar="FILE", help="as --command-config")
    parser.add_argument("--message-create-time", type=int, default=-1, metavar="MS", help="of the first message")
    parser.add_argument("--value-prefix", type=int, help="values are PREFIX.0, PREFIX.1, ...")
    parser.add_argument("--repeating-keys", type=int, metavar="N", help="keys are 0 to N-1, over and over")
    return parser


def main() -> None:
    parser = build_parser()
    if len(sys.argv) == 1:
        parser.print_help()
        return
    options = parser.parse_args()
    check_deprecated_config(options, parser, "producer")
    settings: dict[str, object] = {
        "bootstrap.servers": options.bootstrap_server,
        "acks": str(options.acks),
        "retries": "0",
        **read_properties(options.producer_config or options.command_config),
    }
    run(lambda: _produce(settings, options))


async def _produce(settings: dict[str, object], options: argparse.Namespace) -> None:
    from barnabas.client.errors import DeliveryFailedError
    from barnabas.client.producer.producer import AsyncProducer

    async with AsyncProducer(settings) as producer:
        await producer.cluster.reach()
        sending = _Sending(producer, options)
        with until_signal() as stop:
            emit_event("startup_complete")
            await sending.run()
        with suppress(DeliveryFailedError):  # each failure was printed when it happened
            await producer.flush()
    emit_event("shutdown_complete")
    sending.total()
    stop.exit()


class _Sending:
    """Sends the messages, and counts them."""

    def __init__(self, producer: AsyncProducer, options: argparse.Namespace) -> None:
        self._producer = producer
        self._topic: str = options.topic
        self._count: int = options.max_messages
        self._throughput: int = options.throughput
        self._prefix: int | None = options.value_prefix
        self._keys: int | None = options.repeating_keys
        self._create_time: int | None = options.message_create_time if options.message_create_time != -1 else None
        self._began = time.time()
        self._sent = 0
        self._acked = 0

    async def run(self) -> None:
        while self._count < 0 or self._sent < self._count:
            if self._throughput == 0:
                await asyncio.sleep(3600)  # as Kafka's tool: nothing is sent until the process is stopped
                continue
            await self._send()
            ahead = 0.0
            if self._throughput > 0:
                ahead = self._sent / self._throughput - (time.time() - self._began)
            if ahead > 0 or self._sent % 100 == 0:
                await asyncio.sleep(max(ahead, 0))

    async def _send(self) -> None:
        number = self._sent
        key = None if self._keys is None else str(number % max(self._keys, 1))
        value = str(number) if self._prefix is None else f"{self._prefix}.{number}"
        timestamp = self._create_time
        if timestamp is not None:
            self._create_time = timestamp + int((time.time() - self._began) * 1000)
        self._sent += 1

        def on_delivery(metadata: RecordMetadata | None, error: BaseException | None) -> None:
            if error is not None:
                self._failed(key, value, error)
                return
            assert metadata is not None
            self._acked += 1
            emit_event(
                "producer_send_success",
                key=key,
                value=value,
                topic=metadata.topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )

        from barnabas.core.errors import KafkaError

        try:
            await self._producer.send(
                self._topic,
                value.encode(),
                key=None if key is None else key.encode(),
                timestamp=timestamp,
                on_delivery=on_delivery,
            )
        except KafkaError as error:
            self._failed(key, value, error)

    def _failed(self, key: str | None, value: str, error: BaseException) -> None:
        emit_event(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=f"class {java_exception(error)}",
            message=str(error),
        )

    def total(self) -> None:
        seconds = max(time.time() - self._began, 1e-3)
        emit_event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._throughput,
            avg_throughput=self._acked / seconds,
        )
