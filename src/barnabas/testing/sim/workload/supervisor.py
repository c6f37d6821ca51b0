"""Shell: the supervisor of the client programs: starts them, restarts those that failed or were killed, and stops them
at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.client.errors import TransactionStateError
from barnabas.core.errors import BarnabasError
from barnabas.core.ids import TopicPartition
from barnabas.testing.histories import PollAction, Recorder
from barnabas.testing.sim.errors import CorrectnessError
from barnabas.testing.sim.process import Process, ProcessState

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.client.values import ConsumerRecord
    from barnabas.testing.sim.world import World

PLAIN: Final = "plain"
ATOMIC: Final = "atomic"
COPIED: Final = "copied"
TOPICS: Final = (PLAIN, ATOMIC, COPIED)
GROUP: Final = "readers"
PATIENCE: Final = {
    "request_timeout_ms": 3_000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
    "socket_connection_setup_timeout_ms": 2_000,
    "socket_connection_setup_timeout_max_ms": 4_000,
}
"""Client time-outs of seconds instead of minutes, so that more happens in each simulated run."""
_RESTART_DELAY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Mix:
    """The number of client programs of each kind."""

    producers: int = 0
    transactions: int = 0
    readers: int = 0
    watchers: int = 0
    copiers: int = 0
    sharers: int = 0
    processors: int = 0
    """Members of a group that process every record at least once, whatever they do."""
    followers: int = 0
    """Consumers of a topic that is deleted and created again."""
    visitors: int = 0
    """Users that come and go, in clusters with SASL."""


@dataclass(slots=True)
class WorkloadFacts:
    """The facts that the workload gathers in addition to the history."""

    recorder: Recorder = field(default_factory=Recorder)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    """The highest offset of each partition whose commit was acknowledged."""
    acknowledged: int = 0
    transactions: int = 0
    copied: int = 0
    shared: dict[str, int] = field(default_factory=dict)
    """For each record (`topic-partition@offset`) delivered to share consumers, the number of deliveries."""
    done: dict[str, tuple[str, float]] = field(default_factory=dict)
    """For each record whose acknowledgement was confirmed, the share consumer and the time."""
    done_again: list[str] = field(default_factory=list)
    """Descriptions of the records that were delivered and acknowledged again after a confirmed acknowledgement."""
    plain: dict[int | str, tuple[TopicPartition, int]] = field(default_factory=dict)
    """The values that were acknowledged to producers outside of transactions, and where they are."""
    processed: set[int | str] = field(default_factory=set)
    """The values that a member of the group of processors has processed."""
    fleeting: set[int | str] = field(default_factory=set)
    """The values that were acknowledged in the present topic of those that are deleted and created again."""
    fleeting_id: UUID | None = None
    """The id of the topic that is created and deleted."""
    followed: dict[str, set[int | str]] = field(default_factory=dict)
    """The values that each follower has read."""
    removed_users: int = 0
    next_value: int = 0


class Workload:
    """The client programs of one run. `racks` are the racks in which its consumers may be."""

    def __init__(self, world: World, mix: Mix, *, partitions: int, racks: Sequence[str] = ()) -> None:
        from barnabas.testing.sim.workload.copying import copy
        from barnabas.testing.sim.workload.impatience import IMPATIENT_SHARE
        from barnabas.testing.sim.workload.processing import process
        from barnabas.testing.sim.workload.producing import produce, transact
        from barnabas.testing.sim.workload.reading import read, watch
        from barnabas.testing.sim.workload.recreating import follow, recreate
        from barnabas.testing.sim.workload.sharing import share
        from barnabas.testing.sim.workload.visiting import visit

        self.facts = WorkloadFacts()
        self.world = world
        self.mix = mix
        self.partitions = partitions
        self._racks = racks
        self.hosts: dict[str, Process] = {}
        """The running process on each client host."""
        self.stopping = False
        self.impatient = world.random_stream("impatience").random() < IMPATIENT_SHARE
        """Whether programs cancel calls, and read in other ways than by polls."""
        self.failure: CorrectnessError | None = None
        """What a program found wrong, which ended the program."""
        self.calm = False
        """Whether the impatient programs have become patient, at the end of the run."""
        self.on_acknowledged: Callable[[TopicPartition, int], None] = lambda tp, offset: None
        """Called with each record that was acknowledged to a producer outside of a transaction."""
        self.on_committed: Callable[[str, Mapping[TopicPartition, int]], None] = lambda group, offsets: None
        """Called with each acknowledged commit of a group's offsets outside of a transaction."""
        self._mains: dict[str, Callable[[Workload, str], Awaitable[None]]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._starts: dict[str, int] = {}
        for letter, count, main in (
            ("p", mix.producers, produce), ("t", mix.transactions, transact), ("r", mix.readers, read),
            ("w", mix.watchers, watch), ("c", mix.copiers, copy), ("s", mix.sharers, share),
            ("u", mix.visitors, visit), ("x", mix.processors, process),
            ("d", 1 if mix.followers else 0, recreate), ("f", mix.followers, follow),
        ):  # fmt: skip
            for i in range(count):
                self._mains[f"{letter}{i + 1}"] = main

    def add(self, host: str, main: Callable[[Workload, str], Awaitable[None]]) -> None:
        """Adds a program, which `start` starts on a host of its own."""
        self._mains[host] = main

    # ---- starting and stopping

    def start(self) -> None:
        for host in self._mains:
            self.restart(host)

    def restart(self, host: str) -> None:
        """Starts a new process on a client's host."""
        start = self._starts[host] = self._starts.get(host, 0) + 1
        self.hosts[host], self._running[host] = self.world.start_client(host, self._supervise(host, start))

    def rack_of(self, who: str) -> str:
        """The rack of a consumer; empty if the cluster has no racks."""
        return self.world.random_stream(f"{who}'s rack").choice(self._racks) if self._racks else ""

    def kill(self, host: str) -> None:
        self.world.kill(self.hosts[host])

    async def stop(self, within_s: float) -> None:
        """Lets every program finish its present operation. Raises LivenessError if a program does not end in time, and
        the CorrectnessError of a program."""
        self.stopping = True
        for host, process in self.hosts.items():
            self.world.resume(process)
            if process.state is not ProcessState.DEAD:
                task = self._running[host]
                await self.world.until(task.done, within_s, f"the program on {host} ends its last operation")
                task.result()
        if self.failure is not None:
            raise self.failure

    async def _supervise(self, host: str, start: int) -> None:
        attempt = 0
        while not self.stopping:
            attempt += 1
            try:
                await self._mains[host](self, f"{host}.{start}.{attempt}")
            except TransactionStateError as error:
                self.failure = self.failure or CorrectnessError(f"{host} calls its producer as it may: {error}")
                return
            except CorrectnessError as error:
                self.failure = self.failure or error
                return
            except (BarnabasError, TimeoutError) as error:
                self.trace(host, f"starts anew after {type(error).__name__}: {str(error)[:120]}")
                await asyncio.sleep(_RESTART_DELAY_S)

    # ---- for the programs

    def now(self) -> float:
        """The simulated time for the history, in milliseconds."""
        return self.world.elapsed_s * 1000

    def value(self) -> int:
        """A new value that no other operation of this run sends."""
        self.facts.next_value += 1
        return self.facts.next_value

    def trace(self, who: str, what: str) -> None:
        """Adds a line to the trace."""
        self.world.trace.event(who, what)


def encode(value: int | str, rng: random.Random) -> bytes:
    """The bytes of a record: the value of the history, and random padding."""
    return f"{value}:".encode() + b"x" * rng.choice([0, 10, 200])


def decode(data: bytes | None) -> int | str:
    """The value of the history in the bytes of a record."""
    assert data is not None
    text = data.partition(b":")[0].decode()
    return int(text) if text.isdigit() else text


def polls_of(records: list[ConsumerRecord[bytes, bytes]]) -> list[PollAction]:
    return [PollAction(f"{r.topic}-{r.partition}", decode(r.value), r.offset) for r in records]
