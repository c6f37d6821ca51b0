"""Shell: `python -m bench.bystander [ATTACK...]`: what one client's attack costs another client of the same broker.

Each attack runs against a broker of its own, in a process of its own. Meanwhile the bystander, a client with its own
connection, produces a record every 10 ms to its own topic. Its worst latency, counted from the moment at which a record
was due, is the time for which the broker stood still. "Worst before" is the worst latency of the second before the
attack: what the machine itself costs. "Longest step" and "longest turn" are what the broker itself measured, in CPU
time: the longest time for which a request held the event loop, with its API, and for which anything did. Memory is the
peak of the broker and its child processes. The attacks are in `bench/attacks`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.request import urlopen

from rich.console import Console
from tests.system.broker.wire_client import WireClient

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing.process import BrokerProcess
from bench.attacks.before import BEFORE_CPU_MS, BEFORE_MS
from bench.attacks.edges import consecutive_ports, edge_settings
from bench.attacks.registry import ATTACKS, Attack
from bench.report import Sheet, write

MODULES = ("records", "lists", "largest", "shapes", "groups", "edges", "pipelines", "memory")
"""The modules of `bench/attacks`, in the order of the table."""
TOPIC = "bystander"
INTERVAL_S = 0.010
QUIET_S = 1.0
_HELD = re.compile(r'barnabas_loop_held_max_ms\{by="(\w+)"\} (\S+)')
_TURN = re.compile(r"^barnabas_loop_late_max_ms (\S+)", re.MULTILINE)
STALL_MS_MAX = 250
"""What a bystander may notice of an attack."""
MEMORY_MB_MAX = 400
"""The peak of the broker's memory during an attack."""


class Bystander:
    """Produces a record every 10 ms and keeps the latencies."""

    def __init__(self, address: str) -> None:
        self._client = WireClient(address, timeout_s=600.0)
        self._client.call(
            CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]), 7
        )
        batch = build_batch([SimpleRecord(None, b"x" * 100, int(time.time() * 1000))])
        data = [PartitionProduceData(index=0, records=batch)]
        topic = TopicProduceData(name=TOPIC, partition_data=data)
        self._request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        self._due = time.monotonic()
        self.latencies_ms: list[float] = []

    def tick(self) -> None:
        """Wait until the next record is due, and produce it."""
        self._due = max(self._due + INTERVAL_S, time.monotonic() - INTERVAL_S)
        wait = self._due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        answer = self._client.call(self._request, 9).responses[0].partition_responses[0]
        assert answer.error_code == 0, f"the bystander's record was rejected with {answer.error_code}"
        self.latencies_ms.append((time.monotonic() - self._due) * 1000)

    def run(self, seconds: float) -> list[float]:
        """Produce for so long. Returns the latencies."""
        self.latencies_ms = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tick()
        return self.latencies_ms


class Memory:
    """The resident memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        self.before = _peak_bytes(pid)
        self._children = 0

    def sample(self) -> None:
        """Look at the children, which may end before the attack does."""
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        self._children = max(self._children, sum(_peak_bytes(int(child)) for child in children))

    @property
    def peak(self) -> int:
        return _peak_bytes(self._pid) + self._children


def _peak_bytes(pid: int) -> int:
    """The peak of a process's resident memory; 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


class _MeasuredBroker(BrokerProcess):
    """A broker that serves its metrics, and measures its steps in CPU time (`bench/attacks/server.py`)."""

    metrics_port = 0

    def command(self) -> list[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.metrics_port = probe.getsockname()[1]
        return [*super().command(), "--metrics", f"http://127.0.0.1:{self.metrics_port}"]

    def longest_holds(self, api: ApiKey | None) -> tuple[str, str]:
        """The longest step of this API, or of all requests, and the longest turn of the loop."""
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as page:
            metrics = page.read().decode()
        held = {by: float(held) for by, held in _HELD.findall(metrics)}
        longest = max(held, key=held.__getitem__, default="") if api is None else APIS[api].name
        (turn,) = _TURN.findall(metrics)
        return f"{held.get(longest, 0.0):.0f} ms {longest}", f"{float(turn):.0f} ms"


def _attack(name: str, address: str, pipe: Connection) -> None:
    """In a process of its own: prepare the attack, wait for the word to begin, attack, report."""
    load_attacks()
    steps = ATTACKS[name].run(address)
    try:
        next(steps)
        pipe.send("prepared")
        pipe.recv()
        began = time.monotonic()
        try:
            next(steps)
        except StopIteration as done:
            pipe.send((time.monotonic() - began, str(done.value)))
    except Exception as error:  # noqa: BLE001 - whatever ends an attack is its result
        pipe.send((0.0, f"{type(error).__name__}: {error}"))


def measure(attack: Attack, folder: Path) -> tuple[str, ...]:
    """One row of the table."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    settings = attack.settings + (edge_settings(consecutive_ports()) if attack.listeners else ())
    with _MeasuredBroker(folder / "data", settings=settings, module=("bench.attacks.server",)) as broker:
        assert broker.process is not None
        process = context.Process(target=_attack, args=(attack.name, broker.bootstrap_servers, theirs), daemon=True)
        process.start()
        prepared = ours.recv()
        if prepared != "prepared":
            return (attack.name, "", "", "", "", "", "", "", f"could not be prepared: {prepared[1]}")
        bystander = Bystander(broker.bootstrap_servers)
        bystander.run(QUIET_S / 2)
        before = bystander.run(QUIET_S)
        memory = Memory(broker.process.pid)
        bystander.latencies_ms = []
        os.kill(broker.process.pid, signal.SIGUSR1)
        ours.send("begin")
        while not ours.poll():
            bystander.tick()
            memory.sample()
        seconds, result = ours.recv()
        during = bystander.latencies_ms
        during += bystander.run(QUIET_S)
        memory.sample()
        process.join(10)
        peak = memory.peak
        step, turn = broker.longest_holds(attack.api)
        broker.kill()  # a stop might wait for what the attack has left
        return (
            attack.name,
            f"{max(before):.0f} ms",
            f"{max(during):.0f} ms",
            f"{sorted(during)[int(len(during) * 0.99)]:.0f} ms",
            step,
            turn,
            f"{seconds:.1f} s",
            f"{memory.before / 1e6:.0f} to {peak / 1e6:.0f} MB",
            result,
        )


def load_attacks() -> None:
    """Register all attacks."""
    for module in MODULES:
        import_module(f"bench.attacks.{module}")


def main() -> None:
    assert __doc__ is not None
    load_attacks()
    parser = argparse.ArgumentParser(prog="python -m bench.bystander", description=__doc__.split("\n")[0])
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help="all of them by default: " + ", ".join(ATTACKS))
    parser.add_argument("--list", action="store_true", help="list the attacks and what they send")
    parser.add_argument("--dir", default=None, help="where the brokers' data go")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put a table between the markers of this file")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if unknown := set(options.attacks) - set(ATTACKS):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    if options.list:
        described = [(attack.name, attack.what) for attack in ATTACKS.values()]
        console.print(Sheet("Attacks", ("attack", "one client sends"), described).render())
        return
    rows: list[tuple[str, ...]] = []
    for name in options.attacks or ATTACKS:
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=options.dir) as folder:
            rows.append(measure(ATTACKS[name], Path(folder)))
        if not sys.stdout.isatty():
            print(" | ".join(rows[-1]), file=sys.stderr, flush=True)  # the table follows after minutes
    heading = (
        "attack",
        "worst before",
        "worst during",
        "p99 during",
        "longest step",
        "longest turn",
        "attack took",
        "broker's memory",
        "answer",
    )
    bounds = f"a stall above {STALL_MS_MAX} ms is too long, a peak above {MEMORY_MB_MAX} MB too much"
    title = f"A record every 10 ms on its own connection ({bounds})"
    console.print(Sheet(title, heading, rows).render())
    if options.write is not None:
        write(options.write, [published(rows)], "bystander")


def published(rows: Sequence[tuple[str, ...]]) -> Sheet:
    """The compact table of docs/PERFORMANCE.md, from the rows of the large one."""
    short: list[tuple[str, ...]] = []
    for name, _, during, _, _, turn, _, memory, _ in rows:
        before = ""
        if name in BEFORE_MS:
            before = f"{BEFORE_MS[name]:,} ms"
        elif name in BEFORE_CPU_MS:
            before = f"{BEFORE_CPU_MS[name]:,} ms (CPU)"
        short.append((ATTACKS[name].what, before, during, turn, memory.rpartition(" to ")[2]))
    title = f"A record every 10 ms beside one attack each: the bystander's worst latency (at most {STALL_MS_MAX} ms)"
    return Sheet(title, ("one client sends", "before", "after", "longest turn, CPU", "broker's memory"), short)


if __name__ == "__main__":
    main()
