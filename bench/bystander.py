"""Shell: `python -m bench.bystander [ATTACK...]`: what one client's attack costs another client of the same broker.

Each attack runs against a broker of its own, in a process of its own. Meanwhile the bystander, a client with its own
connection, produces a record every 10 ms to its own topic. Its worst latency, counted from the moment at which a record
was due, is the time for which the broker stood still. "Quiet" are the latencies of the seconds before the attack: what
the machine itself costs. "Longest step" and "longest turn" are what the broker itself measured, in CPU
time: the longest time for which a request held the event loop, with its API, and for which anything did. Memory is the
peak of the broker and its child processes. The attacks are in `bench/attacks`.

`--source DIR --keep bench/attacks/before.json` measures a broker of other sources, and `--write docs/SECURITY.md` puts
a table between the markers of a file, with what was kept so as "before".
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
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from msgspec import Struct, json
from rich.console import Console
from tests.system.broker.wire_client import WireClient

from barnabas.protocol.records.build import SimpleRecord, build_batch
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.testing.process import BrokerProcess
from bench.attacks.before import BEFORE_MS
from bench.attacks.edges import consecutive_ports, edge_settings
from bench.attacks.registry import ATTACKS, PAGES, Attack
from bench.report import Sheet, write

MODULES = ("records", "lists", "largest", "shapes", "groups", "edges", "pipelines", "memory")
"""The modules of `bench/attacks`, in the order of the table."""
TOPIC = "bystander"
INTERVAL_S = 0.010
QUIET_S = 3.0
AFTER_S = 1.0
PUBLISHED = (
    "pipelined-fetches", "pipelined-metadata", "pipelined-offsets", "pipelined-bombs", "pipelined-metrics",
    "pipelined-acls", "pipelined-tokens", "connect-flood", "sasl-flood", "tls-flood", "sasl-passwords",
    "scram-passwords", "tls-half", "half-requests", "half-pages", "unread-responses", "refused-bombs", "refused-wide",
    "recompressed-waits", "invented-metrics",
)  # fmt: skip
"""The attacks of the table that `--write` writes, if no others are named."""
BEFORE = Path(__file__).parent / "attacks" / "before.json"
"""What the attacks cost with older sources, as `--keep` has written it."""
_HELD = re.compile(r'barnabas_loop_held_max_ms\{by="(\w+)"\} (\S+)')
_TURN = re.compile(r"^barnabas_loop_late_max_ms (\S+)", re.MULTILINE)
STALL_MS_MAX = 250
"""What a bystander may notice of an attack."""
MEMORY_MB_MAX = 400
"""The peak of the broker's memory during an attack."""


class Latencies(Struct, frozen=True):
    """Latencies of the bystander, in milliseconds."""

    p50: float
    p99: float
    worst: float

    @classmethod
    def of(cls, latencies_ms: Sequence[float]) -> Self:
        found = sorted(latencies_ms)
        return cls(found[len(found) // 2], found[int(len(found) * 0.99)], found[-1])

    def __str__(self) -> str:
        return f"{_ms(self.p50)} / {_ms(self.p99)}"


class Row(Struct, frozen=True):
    """What one attack cost the bystander and the broker."""

    attack: str
    quiet: Latencies
    during: Latencies
    step: str
    """The longest step of a request, with its API."""
    turn: str
    """The longest turn of the event loop."""
    seconds: float
    """How long the attack took."""
    memory_mb: tuple[int, int]
    """The broker's memory before the attack, and its peak."""
    answer: str
    load: float
    """The load of the machine, for each processor, when the attack ended."""

    def cells(self) -> tuple[str, ...]:
        before, peak = self.memory_mb
        return (
            self.attack, str(self.quiet), str(self.during), f"{_ms(self.during.worst)} ms", self.step, self.turn,
            f"{self.seconds:.1f} s", f"{before} to {peak} MB", self.answer,
        )  # fmt: skip


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds < 10 else f"{milliseconds:,.0f}"


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
        os.environ[PAGES] = str(self.metrics_port)
        return [*super().command(), "--metrics", f"http://127.0.0.1:{self.metrics_port}"]

    def longest_holds(self, api: ApiKey | None) -> tuple[str, str]:
        """The longest step of this API, or of all requests, and the longest turn of the loop."""
        try:
            with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as page:
                metrics = page.read().decode()
        except OSError as error:
            return f"no answer: {error}", ""
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


def measure(attack: Attack, folder: Path, source: Path | None = None) -> Row | str:
    """One row of the table, or why there is none."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    settings = attack.settings + (edge_settings(consecutive_ports()) if attack.listeners else ())
    prefix = () if source is None else ("env", f"PYTHONPATH={source}")
    with _MeasuredBroker(folder / "data", settings=settings, module=("bench.attacks.server",), prefix=prefix) as broker:
        assert broker.process is not None
        process = context.Process(target=_attack, args=(attack.name, broker.bootstrap_servers, theirs), daemon=True)
        process.start()
        prepared = ours.recv()
        if prepared != "prepared":
            return f"{attack.name} could not be prepared: {prepared[1]}"
        bystander = Bystander(broker.bootstrap_servers)
        bystander.run(AFTER_S)
        quiet = Latencies.of(bystander.run(QUIET_S))
        memory = Memory(broker.process.pid)
        bystander.latencies_ms = []
        os.kill(broker.process.pid, signal.SIGUSR1)
        ours.send("begin")
        while not ours.poll():
            bystander.tick()
            memory.sample()
        seconds, result = ours.recv()
        during = bystander.latencies_ms
        during += bystander.run(AFTER_S)
        memory.sample()
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        process.join(10)
        peak = memory.peak
        step, turn = broker.longest_holds(attack.api)
        broker.kill()  # a stop might wait for what the attack has left
        megabytes = round(memory.before / 1e6), round(peak / 1e6)
        return Row(attack.name, quiet, Latencies.of(during), step, turn, seconds, megabytes, result, load)


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
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add the figures to this file, for later tables")
    parser.add_argument("--source", type=Path, metavar="DIR", help="the sources of the broker, instead of these ones")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="kept", help="measure nothing: take what FILE keeps")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if unknown := set(options.attacks) - set(ATTACKS):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}; there are {', '.join(ATTACKS)}")
    if options.list:
        described = [(attack.name, attack.what) for attack in ATTACKS.values()]
        console.print(Sheet("Attacks", ("attack", "one client sends"), described).render())
        return
    names: Sequence[str] = options.attacks or (PUBLISHED if options.write or options.keep else tuple(ATTACKS))
    rows: list[Row] = []
    if options.kept is not None:
        kept = _kept(options.kept)
        rows = [kept[name] for name in names if name in kept]
        names = ()
    for name in names:
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=options.dir) as folder:
            row = measure(ATTACKS[name], Path(folder), options.source)
        if isinstance(row, str):
            console.print(row)
            continue
        rows.append(row)
        if not sys.stdout.isatty():
            print(" | ".join(row.cells()), file=sys.stderr, flush=True)  # the table follows after minutes
        if options.keep is not None:
            figures = _kept(options.keep) | {name: row}
            options.keep.write_bytes(json.format(json.encode(figures), indent=1) + b"\n")
    heading = (
        "attack",
        "quiet p50 / p99, ms",
        "p50 / p99, ms",
        "worst",
        "longest step",
        "longest turn",
        "attack took",
        "broker's memory",
        "answer",
    )
    bounds = f"a stall above {STALL_MS_MAX} ms is too long, a peak above {MEMORY_MB_MAX} MB too much"
    title = f"A record every 10 ms on its own connection ({bounds})"
    console.print(Sheet(title, heading, [row.cells() for row in rows]).render())
    if options.write is not None:
        write(options.write, [published(rows, _kept(BEFORE))], "attacks")


def _kept(path: Path) -> dict[str, Row]:
    """The figures of a file, by attack."""
    return json.decode(path.read_bytes(), type=dict[str, Row]) if path.exists() else {}


def published(rows: Sequence[Row], before: Mapping[str, Row]) -> Sheet:
    """The table of docs/SECURITY.md. Figures without a bystander's p99 are worst latencies."""
    shown: list[tuple[str, ...]] = []
    for row in rows:
        old = before.get(row.attack)
        was = f"{old.during} ms" if old is not None else ""
        if old is None and row.attack in BEFORE_MS:
            was = f"at most {BEFORE_MS[row.attack]:,} ms"
        shown.append((
            ATTACKS[row.attack].what, was, "" if old is None else f"{old.memory_mb[1]} MB", f"{row.quiet} ms",
            f"{row.during} ms", row.turn, f"{row.memory_mb[1]} MB",
        ))  # fmt: skip
    load = f"{min((row.load for row in rows), default=0):.1f} to {max((row.load for row in rows), default=0):.1f}"
    title = (
        "The bystander is a client that produces a record every 10 ms over a connection of its own. The table has the "
        "median and the 99th percentile of its latency, while nobody attacks and beside one attack each. Each "
        f"processor had {load} processes to run."
    )
    heading = (
        "clients send", "before", "memory before", "quiet", "under attack", "longest turn, CPU", "peak memory",
    )  # fmt: skip
    return Sheet(title, heading, shown)


if __name__ == "__main__":
    main()
