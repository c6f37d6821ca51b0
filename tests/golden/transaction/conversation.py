"""Runs a scripted conversation with a transaction coordinator, and returns the script with the actual output.

A script is a list of steps: commands, a line of dashes, and the output (responses, markers, then records):

    init a
    ----
    a: NONE 1000/0
    log: a Empty 1000/0

`a` is a transactional id. A producer is written `id/epoch`. Commands use the id and epoch of the last InitProducerId
response, or those in `as=1000/0`. Commands are listed in `COMMANDS`. Time is virtual and advances with `wait` only. The
production coordinator and its marker sender use a partition in memory. With `markers hold` partition leaders do not
respond; with `markers fail CODE` they reject one request.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from barnabas.protocol.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from barnabas.protocol.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.server.coordination.operation import CoordinatorRecord
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from barnabas.server.coordination.transaction.records import FORMAT
from barnabas.server.coordination.transaction.service import TransactionCoordinator
from barnabas.server.coordination.transaction.state import BY_LABEL, TransactionMetadata, from_record, to_record
from tests.configs import transaction_config
from tests.unit.server.coordination.kit import LoopClock, MemoryWriter, check_committed_views, run_virtual, seeded

TP = TopicPartition(TRANSACTION_STATE_TOPIC, 0)


def replay_script(text: str) -> str:
    """The script with its actual output."""
    return run_virtual(_run(text))


async def _run(text: str) -> str:
    stage = Stage()
    try:
        out = []
        for block in re.split(r"\n\n+", text.strip()):
            lines = block.splitlines()
            comments = [line for line in lines if line.startswith("#")]
            commands = [line for line in lines[: lines.index("----") if "----" in lines else None] if line[:1] != "#"]
            out.append("\n".join(comments + commands))
            if commands:
                for command in commands:
                    await stage.perform(command)
                out[-1] += "\n----\n" + "\n".join(stage.take_events())
        return "\n\n".join(part.rstrip("\n") for part in out) + "\n"
    finally:
        await stage.close()


@dataclass
class TransactionRequestContext:
    api_version: int
    connection_id: int = 1


class Leaders:
    """The leaders of all partitions: broker 1 for even numbers, broker 2 for odd ones. `t9` has been deleted."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.held: asyncio.Event | None = None
        self.refusals: list[ErrorCode] = []

    def leader(self, tp: TopicPartition) -> int | None:
        return None if tp.topic == "t9" else 1 + tp.partition % 2

    async def write(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if self.held is not None:
            await self.held.wait()
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        for marker in request.markers:
            self.events.append(f"marker to broker {broker_id}: {_show_marker(marker)} -> {code.name}")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=p, error_code=code)
                                for p in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


def _show_marker(marker: WritableTxnMarker) -> str:
    verb = "commit" if marker.transaction_result else "abort"
    partitions = " ".join(f"{topic.name}-{p}" for topic in marker.topics for p in topic.partition_indexes)
    who = f"{marker.producer_id}/{marker.producer_epoch}"
    return f"{verb} {who} {partitions} coordinator={marker.coordinator_epoch} tv={marker.transaction_version}"


class Stage:
    """A coordinator and its producers."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}
        self.writer = MemoryWriter()
        self.events: list[str] = []
        self.leaders = Leaders(self.events)
        self.rng = seeded()
        self.producers: dict[str, tuple[int, int]] = {}
        self.next_id = 1000
        self.epoch = 0
        self.seen = 0
        self.level = 2
        self.coordinator: TransactionCoordinator | None = None
        self.owners: list[asyncio.Task[None]] = []
        self.calls: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        tasks = [*self.owners, *self.calls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def start(self) -> TransactionCoordinator:
        if self.coordinator is None:
            self.coordinator = TransactionCoordinator(
                transaction_config(**self.settings),
                self.writer,
                self.leaders,
                self.producer_id,
                LoopClock(),
                self.rng,
            )
            self.coordinator.on_partition_count(1)
            self.coordinator.on_feature_level(self.level)
            loop = asyncio.get_running_loop()
            self.owners = [loop.create_task(self.coordinator.markers.run()), loop.create_task(self.coordinator.run())]
            await settle()
            self.elect()
            await settle()
        return self.coordinator

    async def producer_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    def elect(self) -> None:
        assert self.coordinator is not None
        self.writer[TP].leader = True
        self.coordinator.on_elected(0, self.epoch)
        self.epoch += 1

    async def perform(self, line: str) -> None:
        verb, *words = line.split()
        positional = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        await COMMANDS[verb](self, positional, options)
        await settle()

    def take_events(self) -> list[str]:
        if self.coordinator is not None:
            check_committed_views(self.writer, self.coordinator._runtime)
        for record in self.writer.records(TP, self.seen):
            decoded = FORMAT.decode(record)
            assert decoded is not None
            self.events.append("log: " + show_record(decoded))
        self.seen = self.writer[TP].end
        taken = list(self.events)
        self.events.clear()
        return taken

    def producer(self, name: str, options: dict[str, str]) -> ProducerIdAndEpoch:
        if "as" in options:
            producer_id, epoch = options["as"].split("/")
            return ProducerIdAndEpoch(int(producer_id), int(epoch))
        return ProducerIdAndEpoch(*self.producers.get(name, (-1, -1)))

    def call(self, name: str, awaitable: Awaitable[Any], show: Callable[[Any], str]) -> None:
        async def answered() -> None:
            try:
                self.events.append(f"{name}: {show(await awaitable)}")
            except KafkaError as error:
                self.events.append(f"{name}: raised {error.code.name}")

        task = asyncio.get_running_loop().create_task(answered())
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)


async def settle() -> None:
    """Run all tasks that are ready, without advancing the time."""
    for _ in range(30):
        await asyncio.sleep(0)


def show_record(record: CoordinatorRecord) -> str:
    name = record.key.transactional_id
    if record.value is None:
        return f"{name} removed"
    txn = from_record(record.value)
    text = f"{name} {txn.state.label} {txn.producer_id}/{txn.epoch}"
    if txn.next_producer_id >= 0:
        text += f" next={txn.next_producer_id}/{txn.next_epoch}"
    if txn.partitions:
        text += " " + " ".join(str(tp) for tp in sorted(txn.partitions))
    return text


# -- commands ----------------------------------------------------------------------------------------------------------


async def config(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Set configs before the coordinator starts; `level=1` sets the cluster's transaction.version."""
    stage.level = int(options.pop("level", stage.level))
    stage.next_id = int(options.pop("next-id", stage.next_id))
    for name, value in options.items():
        stage.settings[name] = value == "true" if value in ("true", "false") else int(value)


async def wait(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    await stage.start()
    await asyncio.sleep(float(words[0].removesuffix("s")))


async def init(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """init NAME [as=id/epoch] [timeout=ms] [2pc=yes] [keep=yes]"""
    coordinator = await stage.start()
    name = words[0]
    given = stage.producer(name, options) if "as" in options else ProducerIdAndEpoch()
    request = InitProducerIdRequest(
        transactional_id="" if name == "nameless" else name,
        transaction_timeout_ms=int(options.get("timeout", 60_000)),
        producer_id=given.producer_id,
        producer_epoch=given.epoch,
        enable_2pc=options.get("2pc") == "yes",
        keep_prepared_txn=options.get("keep") == "yes",
    )

    def show(r: InitProducerIdResponse) -> str:
        if r.error_code:
            return ErrorCode(r.error_code).name
        stage.producers[name] = (r.producer_id, r.producer_epoch)
        kept = f" ongoing={r.ongoing_txn_producer_id}/{r.ongoing_txn_producer_epoch}"
        return f"NONE {r.producer_id}/{r.producer_epoch}" + (kept if r.ongoing_txn_producer_id >= 0 else "")

    stage.call(name, coordinator.init_producer_id(TransactionRequestContext(int(options.get("v", 6))), request), show)


async def add(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """add NAME t-0 t-1 [tv=1|2] [conn=n]"""
    coordinator = await stage.start()
    name = words[0]
    partitions = [TopicPartition(*_split(word)) for word in words[1:]]
    done = coordinator.add_partitions(
        name,
        stage.producer(name, options),
        partitions,
        version=int(options.get("tv", 2)),
        connection=int(options.get("conn", 1)),
    )
    stage.call(name, done, lambda code: code.name)


async def verify(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """verify NAME t-0: the request of a partition leader (KIP-890)"""
    coordinator = await stage.start()
    name = words[0]
    producer = stage.producer(name, options)
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for word in words[1:]:
        topic, partition = _split(word)
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
    requested = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=True,
        topics=list(topics.values()),
    )

    def show(result: Any) -> str:
        return " ".join(
            f"{topic.name}-{p.partition_index}:{ErrorCode(p.partition_error_code).name}"
            for topic in result.topic_results
            for p in topic.results_by_partition
        )

    stage.call(f"leader for {name}", coordinator.add_or_verify_partitions(requested, version=2), show)


async def end(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """end NAME commit|abort [tv=1|2] [as=id/epoch] [conn=n]"""
    coordinator = await stage.start()
    name = words[0]
    producer = stage.producer(name, options)
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=words[1] == "commit",
    )
    version = 5 if options.get("tv", "2") == "2" else 4

    def show(r: EndTxnResponse) -> str:
        if r.error_code:
            return ErrorCode(r.error_code).name
        if version == 5:
            stage.producers[name] = (r.producer_id, r.producer_epoch)
            return f"NONE {r.producer_id}/{r.producer_epoch}"
        return "NONE"

    asker = TransactionRequestContext(version, int(options.get("conn", 1)))
    stage.call(name, coordinator.end_txn(asker, request), show)


async def show_one(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    coordinator = await stage.start()

    def show(r: DescribeTransactionsResponse) -> str:
        (t,) = r.transaction_states
        if t.error_code:
            return ErrorCode(t.error_code).name
        where = " ".join(f"{topic.topic}-{p}" for topic in t.topics for p in topic.partitions)
        return f"{t.transaction_state} {t.producer_id}/{t.producer_epoch} timeout={t.transaction_timeout_ms} [{where}]"

    request = DescribeTransactionsRequest(transactional_ids=[words[0]])
    stage.call("describe", coordinator.describe_transactions(TransactionRequestContext(0), request), show)


async def list_all(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """list [states=a,b] [ids=1,2] [longer=ms] [pattern=re]"""
    coordinator = await stage.start()
    request = ListTransactionsRequest(
        state_filters=[s for s in options.get("states", "").split(",") if s],
        producer_id_filters=[int(i) for i in options.get("ids", "").split(",") if i],
        duration_filter=int(options.get("longer", -1)),
        transactional_id_pattern=options.get("pattern"),
    )

    def show(r: ListTransactionsResponse) -> str:
        if r.error_code:
            return ErrorCode(r.error_code).name
        unknown = f" unknown states: {r.unknown_state_filters}" if r.unknown_state_filters else ""
        found = " ".join(f"{t.transactional_id}:{t.transaction_state}" for t in r.transaction_states)
        return f"[{found}]{unknown}"

    stage.call("list", coordinator.list_transactions(TransactionRequestContext(2), request), show)


async def markers(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """markers hold | release | fail CODE"""
    match words:
        case ["hold"]:
            stage.leaders.held = asyncio.Event()
        case ["release"]:
            assert stage.leaders.held is not None
            stage.leaders.held.set()
            stage.leaders.held = None
        case ["fail", *codes]:
            stage.leaders.refusals.extend(ErrorCode[code] for code in codes)


async def fail(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The next append fails with this code."""
    stage.writer.refusals.append(ErrorCode[words[0]])


async def hold(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The followers stop fetching: no record is committed until `release`."""
    stage.writer.hold = True


async def release(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    stage.writer.hold = False
    stage.writer.commit(TP)


async def record(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """record NAME STATE id/epoch: a record of another coordinator, loaded by the next `restart`"""
    name, state, producer = words
    producer_id, epoch = producer.split("/")
    txn = TransactionMetadata(int(producer_id), int(epoch), state=BY_LABEL[state], timeout_ms=60_000, client_version=2)
    encoded = FORMAT.encode(to_record(name, txn, 1))
    stage.writer.append(TP, [encoded], 0)
    stage.producers[name] = (int(producer_id), int(epoch))


async def restart(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The partition is unloaded and loaded again: volatile state is lost."""
    coordinator = await stage.start()
    coordinator.on_resigned(0)
    await settle()
    stage.elect()


def _split(word: str) -> tuple[str, int]:
    topic, partition = word.rsplit("-", 1)
    return topic, int(partition)


COMMANDS: dict[str, Callable[[Stage, list[str], dict[str, str]], Awaitable[None]]] = {
    "config": config,
    "wait": wait,
    "init": init,
    "add": add,
    "verify": verify,
    "end": end,
    "describe": show_one,
    "list": list_all,
    "markers": markers,
    "fail": fail,
    "hold": hold,
    "release": release,
    "restart": restart,
    "record": record,
}
