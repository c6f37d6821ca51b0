"""Shell: one run: a broker, workers on two clients, faults, a final read, a report."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.testing.histories import ClientHistory, HistoryRules, Report, check
from barnabas.testing.process import BrokerProcess
from tests.system.anomalies.clients import PARTITIONS, TOPIC
from tests.system.anomalies.workers import Bench, Member, Poller, Sender, Transactor, Worker, poll_to_the_end

SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "group.min.session.timeout.ms=1000",
)
FAULTS = ("kill", "stop")
"""kill: kill -9 and a start. stop: SIGSTOP for longer than the clients' request time-out, and SIGCONT."""
STOPPED_S = 1.5
CALM_S = (0.6, 2.0)
JOIN_S = 60.0
RULES = HistoryRules(catching_up=frozenset({"last"}))
_SO_FAR = HistoryRules(healed=False)


@dataclass
class Result:
    """The result of a run. `ended`: whether the log could be read to its end."""

    report: Report
    history: ClientHistory
    ended: bool
    broken: list[str]
    faults: Counter[str] = field(default_factory=Counter)

    def keep(self, folder: Path) -> Path:
        """Writes the history to a file, and returns its path."""
        path = folder / "history.jsonl"
        path.write_text(self.history.to_json_lines())
        return path


def run(
    broker: BrokerProcess, *, seconds: float, seed: int, faults: Sequence[str] = FAULTS, until_found: bool = False
) -> Result:
    """Runs the workload on a running broker; the broker runs at the end, too. With `until_found` the first forbidden
    anomaly ends the run early."""
    bench = Bench(broker.bootstrap_servers, seed)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
    workers: list[Worker] = []
    for ours, client in ((False, "rdk"), (True, "ours")):
        workers += [Transactor(bench, f"txn-{client}-{n}", ours) for n in range(2)]
        workers += [kind(bench, f"{kind.__name__.lower()}-{client}", ours) for kind in (Sender, Poller, Member)]
    for worker in workers:
        worker.start()
    done: Counter[str] = Counter()
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(rng.uniform(*CALM_S), left))  # the workers go on without faults for a random time
        if until_found and check(bench.recorder.history(), _SO_FAR).forbidden:
            break
        if faults and time.monotonic() < deadline:
            fault = rng.choice(faults)
            _hurt(broker, fault)
            done[fault] += 1
    bench.stop.set()
    _join(workers, bench)
    ended = poll_to_the_end(bench, 20.0)
    history = bench.recorder.history()
    return Result(check(history, RULES), history, ended, bench.broken, done)


def _hurt(broker: BrokerProcess, fault: str) -> None:
    if fault == "kill":
        broker.kill()
        broker.start()
        return
    assert broker.process is not None
    os.kill(broker.process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)  # the fault lasts so long
    os.kill(broker.process.pid, signal.SIGCONT)


def _join(workers: list[Worker], bench: Bench) -> None:
    deadline = time.monotonic() + JOIN_S
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    bench.broken += [f"{worker.process} never ended" for worker in workers if worker.is_alive()]
