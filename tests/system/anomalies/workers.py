"""Shell: threads that use clients, and record their operations."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
import traceback
from collections.abc import Sequence

import confluent_kafka as rdk

from barnabas.core.errors import BarnabasError
from barnabas.testing.histories import Action, OperationKind, OperationOutcome, Recorder, SendAction
from tests.system.anomalies.clients import (
    KEYS,
    TOPIC,
    OurReader,
    OurWriter,
    RdkReader,
    RdkWriter,
    Reader,
    Writer,
    partition_of,
    polls_of,
)

ABORTED_ON_PURPOSE = 0.25
ZOMBIES = 0.08
POLL_S = 0.1


class Bench:
    """The settings, the recorder and the flags that all workers of a run share."""

    def __init__(self, servers: str, seed: int) -> None:
        self.servers = servers
        self.seed = seed
        self.recorder = Recorder()
        self.stop = threading.Event()
        self.broken: list[str] = []
        self._values = itertools.count(1)

    def sends(self, rng: random.Random, most: int) -> list[SendAction]:
        """Unique values for random partitions."""
        return [SendAction(rng.choice(KEYS), next(self._values)) for _ in range(rng.randint(1, most))]


def now_ms() -> float:
    return time.monotonic() * 1000


class Worker(threading.Thread):
    """One process of the history. An unexpected exception of a client is added to `bench.broken`."""

    def __init__(self, bench: Bench, name: str, ours: bool) -> None:
        super().__init__(name=name, daemon=True)
        self.bench = bench
        self.recorder = bench.recorder
        self.ours = ours
        self.rng = random.Random(f"{bench.seed} {name}")
        self.incarnation = 0
        self.process = f"{name}/0"

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001 - the root of a thread: the run must hear of it
            self.bench.broken.append(f"{self.process}: {error!r} in {traceback.format_exc()}")

    def work(self) -> None:
        raise NotImplementedError

    def reborn(self) -> None:
        """A new process name, for a new client: its operations have no order relative to those of the old client."""
        self.incarnation += 1
        self.process = f"{self.name}/{self.incarnation}"

    def writer(self, transactional_id: str | None = None) -> Writer:
        make = OurWriter if self.ours else RdkWriter
        return make(self.bench.servers, transactional_id)

    def reader(self, group: str, protocol: str = "classic") -> Reader:
        make = OurReader if self.ours else RdkReader
        return make(self.bench.servers, group, protocol)


class Sender(Worker):
    """Sends with an idempotent producer, without transactions."""

    def work(self) -> None:
        writer = self.writer()
        while not self.bench.stop.is_set():
            sends = self.bench.sends(self.rng, 12)
            invoked = self.recorder.invoke(self.process, OperationKind.SEND, sends, now_ms())
            done = writer.send(sends)
            if all(send.offset is not None for send in done):
                self.recorder.ok(invoked, done, now_ms())
            else:
                self.recorder.info(invoked, done, now_ms())
                with contextlib.suppress(BarnabasError, rdk.KafkaException):
                    writer.close()
                writer = self.writer()
                self.reborn()
        writer.close()


class Poller(Worker):
    """Reads all partitions with manual assignment: its polls may neither skip nor repeat records."""

    def work(self) -> None:
        reader = self.reader(f"poller-{self.name}")
        reader.assign()
        self.recorder.note(self.process, OperationKind.ASSIGN, KEYS, now_ms())
        while not self.bench.stop.is_set():
            invoked = self.recorder.invoke(self.process, OperationKind.POLL, (), now_ms())
            self.recorder.ok(invoked, reader.poll(POLL_S, 200), now_ms())
        reader.close()


class Member(Worker):
    """Reads as a member of a group: rebalances may make it skip and repeat records."""

    def work(self) -> None:
        reader = self.reader("members", "consumer")
        reader.subscribe()
        self.recorder.note(self.process, OperationKind.SUBSCRIBE, (), now_ms())
        while not self.bench.stop.is_set():
            before = reader.rebalances
            invoked = self.recorder.invoke(self.process, OperationKind.POLL, (), now_ms())
            polls = reader.poll(POLL_S, 200)
            self.recorder.ok(invoked, polls, now_ms(), rebalanced=reader.rebalances != before)
        reader.close()


class Transactor(Worker):
    """Reads and writes in transactions that commit its offsets, with a group of its own. It aborts some transactions,
    and leaves some producers behind as zombies."""

    def work(self) -> None:
        self.group = f"group-{self.name}"
        writer = self.writer(self.name)
        reader = self.reader(self.group)
        reader.assign()
        self.recorder.note(self.process, OperationKind.ASSIGN, KEYS, now_ms())
        while not self.bench.stop.is_set():
            if self.rng.random() < ZOMBIES:
                self._leave_zombie(writer)
                writer = self._anew(writer, reader)
                continue
            outcome = self._transact(writer, reader)
            if writer.finished or outcome is OperationOutcome.INFO:
                writer = self._anew(writer, reader)
            elif outcome is OperationOutcome.FAIL:
                self._rewind(reader)
        # end the open transaction, so that the log can be read to its end
        writer.close()
        self.writer(self.name).close()
        reader.close()

    def _transact(self, writer: Writer, reader: Reader) -> OperationOutcome:
        commit = self.rng.random() >= ABORTED_ON_PURPOSE
        sends = self.bench.sends(self.rng, 4)
        cut = self.rng.randint(0, len(sends))
        invoked = self.recorder.invoke(self.process, OperationKind.TRANSACTION, sends, now_ms(), group=self.group)
        writer.begin()
        first = writer.send(sends[:cut])
        polls = reader.poll(POLL_S, 20)
        second = writer.send(sends[cut:])
        positions = {partition_of(poll.key): poll.offset + 1 for poll in polls}
        outcome = (writer.commit if commit else writer.abort)(positions, reader)
        actions: list[Action] = [*first, *polls, *second]
        end = {
            OperationOutcome.OK: self.recorder.ok,
            OperationOutcome.FAIL: self.recorder.fail,
            OperationOutcome.INFO: self.recorder.info,
        }
        end[outcome](invoked, actions, now_ms())
        return outcome

    def _leave_zombie(self, zombie: Writer) -> None:
        """Replaces a producer in the middle of a transaction. The old producer continues after its successor
        started."""
        before, after = self.bench.sends(self.rng, 2), self.bench.sends(self.rng, 2)
        invoked = self.recorder.invoke(self.process, OperationKind.TRANSACTION, [*before, *after], now_ms())
        zombie.begin()
        first = zombie.send(before)
        successor = self.writer(self.name)  # aborts the zombie's transaction
        successor.begin()
        kept = self.bench.sends(self.rng, 2)
        own = self.recorder.invoke(f"{self.process}-successor", OperationKind.TRANSACTION, kept, now_ms())
        kept = successor.send(kept)
        second: Sequence[SendAction] = after
        outcome = OperationOutcome.FAIL
        with contextlib.suppress(BarnabasError, rdk.KafkaException):
            second = zombie.send(after)
            nowhere = self.reader(self.group)
            if zombie.commit({}, nowhere) is OperationOutcome.OK:
                outcome = OperationOutcome.OK  # the commit was acknowledged, so every record must be visible
            nowhere.close()
        end = self.recorder.ok if outcome is OperationOutcome.OK else self.recorder.fail
        end(invoked, [*first, *second], now_ms())
        nowhere = self.reader(self.group)
        told = successor.commit({}, nowhere)
        nowhere.close()
        end = {
            OperationOutcome.OK: self.recorder.ok,
            OperationOutcome.FAIL: self.recorder.fail,
            OperationOutcome.INFO: self.recorder.info,
        }[told]
        end(own, kept, now_ms())
        successor.close()

    def _anew(self, old: Writer, reader: Reader) -> Writer:
        with contextlib.suppress(BarnabasError, rdk.KafkaException):
            old.close()
        writer = self.writer(self.name)
        self.reborn()
        self._rewind(reader)
        return writer

    def _rewind(self, reader: Reader) -> None:
        reader.to_committed()
        self.recorder.note(self.process, OperationKind.ASSIGN, KEYS, now_ms())


def poll_to_the_end(bench: Bench, seconds: float) -> bool:
    """Reads every partition to its end with a final reader. Returns False if the end was not reached in time."""
    reader = rdk.Consumer(
        {
            "bootstrap.servers": bench.servers,
            "group.id": "last",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    ends = {}
    for key in KEYS:
        where = rdk.TopicPartition(TOPIC, partition_of(key), 0)
        ends[partition_of(key)] = reader.get_watermark_offsets(where, timeout=20)[1]
    reader.assign([rdk.TopicPartition(TOPIC, partition, 0) for partition in ends])
    bench.recorder.note("last", OperationKind.ASSIGN, KEYS, now_ms())
    reached: set[int] = set()
    deadline = time.monotonic() + seconds
    while len(reached) < len(ends) and time.monotonic() < deadline:
        invoked = bench.recorder.invoke("last", OperationKind.POLL, (), now_ms())
        messages = reader.consume(1000, timeout=0.5)
        bench.recorder.ok(invoked, polls_of(messages), now_ms())
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if message.error() is not None and partition is not None and offset is not None:
                reached |= {partition} if offset >= ends[partition] else set()
    reader.close()
    return len(reached) == len(ends)
