"""The kill matrix of the exactly-once sink: random faults at named points, until a number of them has fired.

    python -m tests.system.spark.kill_matrix --faults 100 --brokers 3 --plan shuffle
    python -m tests.system.spark.kill_matrix --faults 30 --kafka              # Apache Kafka as the broker
    python -m tests.system.spark.kill_matrix --faults 30 --plan speculation   # a standalone Spark of two workers

Prints a table of the faults, and the counts of rows that a read_committed consumer of librdkafka finds. The exit code
is 0 if nothing is lost and nothing is doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from examples.cluster.standalone import StandaloneSpark

from barnabas.client.blocking import Admin
from barnabas.core.child_processes import start_child
from barnabas.testing.process import BrokerProcess
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import wait_until
from tests.system.spark.faults import DRIVER_POINTS, TASK_POINTS

ROOT = Path(__file__).parents[3]
ROWS_PER_FAULT = 40
PARTITIONS = 3
ARMED_S = 45.0
"""How long a random fault stays armed before another one takes its place: not every point is reached in every state."""
END_S = 600.0
"""After the last fault the query begins or ends a micro-batch within this time."""


@dataclass
class Matrix:
    """One run. Rows are the numbers from 0; the counts are in `fired`."""

    folder: Path
    servers: str
    plan: str
    master: str
    rng: random.Random
    brokers: list[BrokerProcess] = field(default_factory=list)
    hard_share: float = 0.15
    broker_share: float = 0.08
    rows: int = 0
    fired: Counter[tuple[str, str]] = field(default_factory=Counter)
    driver_starts: int = 0
    _driver: subprocess.Popen[bytes] | None = None

    def run(self, faults: int, given: Iterator[tuple[str, str]] | None = None) -> None:
        """Play faults, at random or those that are `given`, until so many have fired; then let the query finish."""
        self._create_topics()
        while sum(self.fired.values()) < faults:
            self._feed(ROWS_PER_FAULT)
            point, action = self._choose() if given is None else next(given)
            if self._play(point, action, ARMED_S if given is None else END_S):
                self.fired[action, point] += 1
                print(f"{sum(self.fired.values()):4} {action:7} {point}", file=sys.stderr, flush=True)
        (self.folder / "finish").touch()
        wait_until(self._has_finished, "the query has written all rows", progress=self._micro_batches, patience_s=END_S)

    def _choose(self) -> tuple[str, str]:
        if self.plan == "speculation" and self.rng.random() < 0.5:
            return self.rng.choice(TASK_POINTS), "sleep"
        point = self.rng.choice(TASK_POINTS + DRIVER_POINTS)
        chance = self.rng.random()
        if chance < self.hard_share:
            return point, self.rng.choice(("jvm", "driver"))
        if self.brokers and chance < self.hard_share + self.broker_share:
            return point, "broker"
        return point, self.rng.choice(("raise", "exit"))

    def _play(self, point: str, action: str, patience_s: float) -> bool:
        """Arm a fault and wait until it has fired. False if its point was not reached."""
        self._restart_brokers()
        (self.folder / "broker.pid").write_text(" ".join(str(b.process.pid) for b in self.brokers if b.process))
        before = len(list(self.folder.glob("fired-*")))
        armed = self.folder / "armed"
        new = self.folder / "arming"
        new.write_text(json.dumps({"point": point, "action": action}))
        new.rename(armed)
        deadline = time.monotonic() + patience_s
        while len(list(self.folder.glob("fired-*"))) == before:
            self._keep_running()
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    armed.unlink()
                    return False
                break  # it has just fired
            self._feed(2)
            time.sleep(1.0)  # two rows a second, so that the query always has a micro-batch to run
        self._keep_running()
        return True

    def _keep_running(self) -> None:
        """Start again what was killed."""
        self._restart_brokers()
        if self._driver is not None and self._driver.poll() is None:
            return
        if self._driver is not None and self._driver.poll() == 0:
            return
        self.driver_starts += 1
        command = [sys.executable, "-m", "tests.system.spark.faulty_query", str(self.folder), self.servers, self.plan]
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT), str(ROOT / "tests/system/spark/faulty")))
        with (self.folder / "driver.log").open("a") as log:
            self._driver = start_child(
                [*command, self.master],
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def _restart_brokers(self) -> None:
        for broker in self.brokers:
            if not broker.alive:
                broker.start()

    def _has_finished(self) -> bool:
        self._keep_running()
        return self._driver is not None and self._driver.poll() == 0

    def _micro_batches(self) -> list[str]:
        """The files of the checkpoint: one more when a micro-batch begins, and one more when it is committed."""
        return sorted(map(str, (self.folder / "checkpoint").glob("*/*")))

    def stop(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            self._driver.send_signal(signal.SIGKILL)
            self._driver.wait()

    def _create_topics(self) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            replicas = min(3, max(1, len(self.brokers)))
            for topic in ("in", "out"):
                admin.create_topic(topic, PARTITIONS, replicas)

    def _feed(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        for number in range(self.rows, self.rows + count):
            producer.produce("in", str(number).encode(), partition=number % PARTITIONS)
        deadline = time.monotonic() + END_S
        while producer.flush(1):
            self._restart_brokers()  # a fault may kill the only broker just now
            assert time.monotonic() < deadline, "the rows of the source cannot be written"
        self.rows += count

    def verify(self) -> bool:
        found = Counter(committed(self.servers))
        lost = [number for number in range(self.rows) if not found[number]]
        doubled = [number for number, times in found.items() if times > 1]
        with Admin(bootstrap_servers=self.servers) as admin:
            still_open = admin.list_transactions(states=["Ongoing"])
        actions = Counter[str]()
        for (action, _), times in self.fired.items():
            actions[action] += times
        print(f"| faults | {' | '.join(sorted(actions))} | driver starts | rows | lost | doubled | open |")
        print("|---" * (len(actions) + 6) + "|")
        counts = " | ".join(str(actions[action]) for action in sorted(actions))
        print(
            f"| {sum(actions.values())} | {counts} | {self.driver_starts} | {self.rows} | {len(lost)} | {len(doubled)}"
            f" | {len(still_open)} |"
        )
        for (action, point), times in sorted(self.fired.items()):
            print(f"  {action:7} {point:18} {times}")
        print(f"  further attempts of tasks: {len(list(self.folder.glob('attempt-*')))}")
        if lost or doubled or still_open:
            print("lost", lost[:20], "doubled", doubled[:20], "open", still_open[:5])
        return not lost and not doubled


def committed(servers: str) -> list[int]:
    """All numbers in the topic `out`, by a read_committed consumer of librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "verify",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("out", p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    numbers, ended = [], set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, "the consumer stalls"
        if message.error() is None:
            numbers.append(int(message.value()))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return numbers


@contextlib.contextmanager
def cluster(folder: Path, count: int) -> Iterator[tuple[str, list[BrokerProcess]]]:
    """One broker, or three of which any may be killed."""
    settings = ["transaction.two.phase.commit.enable=true"]
    if count == 1:
        with BrokerProcess(folder / "broker", settings=settings) as broker:
            yield broker.bootstrap_servers, [broker]
        return
    with ClusterProcess(folder / "cluster", brokers=count, settings=settings) as running:
        yield running.bootstrap_servers, [running.node(broker_id) for broker_id in running.broker_ids]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--plan", choices=("narrow", "shuffle", "speculation"), default="shuffle")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka instead of our broker")
    parser.add_argument("--master", help="default: local[3,4], or a standalone Spark for --plan speculation")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="kill-matrix-"))
    folder.mkdir(parents=True, exist_ok=True)
    seed = given.seed if given.seed is not None else random.randrange(10_000)
    print(f"seed {seed}, in {folder}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        brokers: list[BrokerProcess] = []
        if given.kafka:
            from tests.interop.apache_kafka import ApacheKafka

            servers = stack.enter_context(ApacheKafka(folder).running()).bootstrap
        else:
            servers, brokers = stack.enter_context(cluster(folder, given.brokers))
        master = given.master or "local[3,4]"
        if given.plan == "speculation" and not given.master:
            spark = StandaloneSpark(folder / "spark", cores=2, hosts_differ=True)
            master = stack.enter_context(spark).url
        matrix = Matrix(folder, servers, given.plan, master, random.Random(seed), brokers)
        stack.callback(matrix.stop)
        matrix.run(given.faults)
        return 0 if matrix.verify() else 1


if __name__ == "__main__":
    sys.exit(main())
