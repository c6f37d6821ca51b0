"""Runs a scripted conversation between a producer and brokers whose leaderships move, and returns the actual output.

A script has commands, a line of dashes, and the output (responses, messages between brokers, the log of
`__transaction_state-0`, the logs of data partitions). The brokers 1, 2 and 3 each have a production coordinator
(`transaction_cluster`). At first broker 1 is the coordinator, and broker p + 1 leads t-p. The producer has one
transactional id, `id`. Commands are the functions below that have a docstring.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import TopicPartition
from barnabas.protocol.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from barnabas.protocol.wire.schema import Request
from barnabas.server.coordination.ports import ProducerIdAndEpoch
from tests.golden.transaction.conversation import TransactionRequestContext, _show_marker, settle
from tests.unit.server.coordination.kit import run_virtual
from tests.unit.server.coordination.transaction_cluster import NODES, Cluster, Entry

NAME = "id"


def replay_moves(text: str) -> str:
    """The script with its actual output."""
    return run_virtual(_run(text))


async def _run(text: str) -> str:
    cluster = Cluster()
    stage = Stage(cluster)
    out: list[str] = []

    async def scenario() -> None:
        for block in re.split(r"\n\n+", text.strip()):
            lines = block.splitlines()
            end = lines.index("----") if "----" in lines else None
            said = lines[:end]
            out.append("\n".join(said))
            if end is not None:
                for command in (line for line in said if not line.startswith("#")):
                    await stage.perform(command)
                out[-1] += "\n----\n" + "\n".join(stage.take_events())

    try:
        await cluster.run(scenario)
    finally:
        for call in stage.calls:
            call.cancel()
    return "\n\n".join(part.rstrip("\n") for part in out) + "\n"


class Stage:
    """The producer, and a recorder of all messages."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.events: list[str] = []
        self.producer = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.fates: dict[tuple[int, int], str] = {}
        self.seen: dict[TopicPartition, int] = {}
        self.calls: set[asyncio.Task[None]] = set()
        cluster.fate = self.fate

    def fate(self, source: int, target: int, request: Request) -> str:
        fate = self.fates.get((source, target), "deliver")
        note = {"deliver": "", "lose": " (lost)", "mute": " (its answer is lost)"}[fate]
        self.events.append(f"{source} -> {target}: {_show(request)}{note}")
        return fate

    async def perform(self, line: str) -> None:
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        await COMMANDS[verb](self, [word for word in words if "=" not in word], options)
        await settle()
        await asyncio.sleep(0.01)  # messages between brokers take a millisecond

    def take_events(self) -> list[str]:
        self.events += ["log: " + line for line in self.cluster.state_events()]
        for tp, data in sorted(self.cluster.data.items()):
            self.events += [f"{tp}: {_show_entry(entry)}" for entry in data.log[self.seen.get(tp, 0) :]]
            self.seen[tp] = len(data.log)
        taken = list(self.events)
        self.events.clear()
        return taken

    def call(self, what: str, awaitable: Awaitable[Any], show: Callable[[Any], str]) -> None:
        async def answered() -> None:
            self.events.append(f"{what}: {show(await awaitable)}")

        task = asyncio.ensure_future(answered())
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    def coordinator(self, options: dict[str, str]) -> Any:
        return self.cluster.nodes[int(options.get("at", self.cluster.state.leader))].coordinator

    def who(self, options: dict[str, str]) -> ProducerIdAndEpoch:
        if "as" in options:
            producer_id, epoch = options["as"].split("/")
            return ProducerIdAndEpoch(int(producer_id), int(epoch))
        return ProducerIdAndEpoch(*self.producer)


def _show(request: Request) -> str:
    match request:
        case WriteTxnMarkersRequest():
            return "; ".join(_show_marker(marker) for marker in request.markers)
        case AddPartitionsToTxnRequest():
            return "add " + " ".join(
                f"{topic.name}-{p} to {t.transactional_id} of {t.producer_id}/{t.producer_epoch}"
                for t in request.transactions
                for topic in t.topics
                for p in topic.partitions
            )
    raise AssertionError(request)


def _show_entry(entry: Entry) -> str:
    who = f"{entry.producer_id}/{entry.epoch}"
    if entry.committed is None:
        return f"data of {who}"
    return f"{'commit' if entry.committed else 'abort'} of {who} by coordinator epoch {entry.coordinator_epoch}"


# -- commands ----------------------------------------------------------------------------------------------------------


async def init(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """init [at=BROKER]: a new incarnation of the producer"""
    request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)

    def show(r: Any) -> str:
        if not r.error_code:
            stage.producer = (r.producer_id, r.producer_epoch)
            stage.sequences.clear()
        return f"{ErrorCode(r.error_code).name} {r.producer_id}/{r.producer_epoch}"

    stage.call("init", stage.coordinator(options).init_producer_id(TransactionRequestContext(5), request), show)


async def write(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """write t-0 [as=id/epoch]: to the partition's leader, which first verifies the partition at the coordinator"""
    for word in words:
        topic, index = word.rsplit("-", 1)
        tp = TopicPartition(topic, int(index))
        sequence = stage.sequences.get(tp, 0)

        def show(code: ErrorCode, tp: TopicPartition = tp, sequence: int = sequence) -> str:
            if code is ErrorCode.NONE:
                stage.sequences[tp] = sequence + 1
            return code.name

        stage.call(f"write {word}", stage.cluster.write(NAME, stage.who(options), tp, sequence), show)
        await settle()


async def end(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """end commit|abort [at=BROKER] [as=id/epoch]"""
    who = stage.who(options)
    request = EndTxnRequest(
        transactional_id=NAME, producer_id=who.producer_id, producer_epoch=who.epoch, committed=words[0] == "commit"
    )

    def show(r: Any) -> str:
        if r.error_code:
            return ErrorCode(r.error_code).name
        stage.producer = (r.producer_id, r.producer_epoch)
        stage.sequences.clear()
        return f"NONE {r.producer_id}/{r.producer_epoch}"

    stage.call("end", stage.coordinator(options).end_txn(TransactionRequestContext(5), request), show)


async def elect(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """elect BROKER [tail=lost] [unheard]: a new coordinator; `tail=lost`: without the uncommitted records; `unheard`:
    the old coordinator is not notified"""
    stage.cluster.elect(int(words[0]), tail=options.get("tail") != "lost", told="unheard" not in words)


async def tell(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """tell BROKER: notify the broker of all leadership changes"""
    stage.cluster.tell(int(words[0]))


async def move(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """move t-0 BROKER [unheard]: a new partition leader; `unheard`: the other brokers are not notified"""
    topic, index = words[0].rsplit("-", 1)
    stage.cluster.move(TopicPartition(topic, int(index)), int(words[1]), told="unheard" not in words)


async def hold(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """The followers stop fetching: no record is committed until `commit`."""
    stage.cluster.hold()


async def commit(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """Commit all records."""
    stage.cluster.commit()


async def wire(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """wire BROKER deliver|lose|mute [from=BROKER]: the fate of messages to the broker"""
    for source in [int(options["from"])] if "from" in options else NODES:
        stage.fates[source, int(words[0])] = words[1]


async def wait(stage: Stage, words: list[str], options: dict[str, str]) -> None:
    """wait SECONDS"""
    await asyncio.sleep(float(words[0]))


Command = Callable[[Stage, list[str], dict[str, str]], Awaitable[None]]
COMMANDS: dict[str, Command] = {
    command.__name__: cast("Command", command)
    for command in (init, write, end, elect, tell, move, hold, commit, wire, wait)
}
