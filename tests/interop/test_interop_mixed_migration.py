"""A cluster of three nodes of Apache Kafka becomes one of Barnabas, and Apache Kafka again, under load.

Each node in turn is stopped and started with the other program, on the same settings and data directory. In between,
nodes of both kinds are killed. Clients run throughout: idempotent producers with each codec, a group of each protocol,
committers of offsets, an administrator, transactional copiers on librdkafka, Java and franz-go, and share consumers.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from barnabas.core.child_processes import start_child
from tests.interop.foreign_clients import go_program, run_go
from tests.interop.jars import KAFKA_VERSION, OLDER_VERSION, clients_classpath
from tests.interop.mixed_cluster import MixedCluster, Program
from tests.progress import STANDSTILL_S, Standstill, flush
from tests.system.chaos.workload import CODECS, Acknowledged, Administrator, Committer, Writer, create_logs
from tests.system.cluster.copies import PER_TRANSACTION, Copies, librdkafka
from tests.system.cluster.readers import Readers
from tests.system.transactions.exactly_once import Command

JAVA = Path(__file__).parent / "java"
SEED = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
ROUNDS = int(os.environ.get("BARNABAS_MIGRATIONS", "1"))
SETTINGS = (
    "min.insync.replicas=2",
    "transaction.state.log.min.isr=2",
    "broker.session.timeout.ms=6000",
)


class Sharers:
    """A producer of numbers, and share consumers of each client, which process each number at least once.

    `commands` has the programs that print each number that they get, by the names of their clients."""

    def __init__(self, address: str, folder: Path, commands: Mapping[str, Sequence[str]]) -> None:
        self.sent = 0
        self.seen: Counter[int] = Counter()
        self.by_client: Counter[str] = Counter()
        """The number of records that each client got."""
        self._folder = folder
        self.runs = [partial(self.run_program, name, command) for name, command in commands.items()]
        self.ended: list[str] = []
        self._address = address
        self._lock = threading.Lock()
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("queue", 2, 3)])["queue"].result(30)
        earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, "sharers", incremental_configs=[earliest])
        admin.incremental_alter_configs([resource])[resource].result(30)
        self._producer = Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 300_000, "log_level": 0}
        )

    def feed(self, stop: threading.Event) -> None:
        while not stop.wait(0.02):
            self._producer.produce("queue", str(self.sent), partition=self.sent % 2)
            self._producer.poll(0)
            self.sent += 1

    def run(self, stop: threading.Event) -> None:
        consumer = ShareConsumer({"bootstrap.servers": self._address, "group.id": "sharers", "log_level": 0})
        consumer.subscribe(["queue"])
        try:
            while not stop.is_set():
                try:
                    for message in consumer.poll(timeout=0.5):
                        if message.error() is None:
                            self._take("librdkafka", int(message.value() or b""))
                except KafkaException:
                    continue  # the group's coordinator moves
        finally:
            consumer.close()

    def run_program(self, name: str, command: Sequence[str], stop: threading.Event) -> None:
        """Run a program until `stop` is set. It must not end by itself."""
        log = self._folder / f"sharer-{name}.log.txt"
        with log.open("ab") as errors:
            process = start_child(list(command), stdout=subprocess.PIPE, stderr=errors, text=True)
        reader = threading.Thread(target=self._read, args=(name, process))
        reader.start()
        while not stop.wait(0.2) and process.poll() is None:
            pass
        self.ended += [] if stop.is_set() else [f"{name}: see {log}"]
        process.kill()
        reader.join(STANDSTILL_S)

    def _read(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith("\n"):  # not the half of a line
                self._take(name, int(line))

    def _take(self, name: str, number: int) -> None:
        with self._lock:
            self.seen[number] += 1
            self.by_client[name] += 1

    def check(self) -> str:
        """Every number was delivered, and each client has got some."""
        assert not self.ended, f"programs have ended: {self.ended}"
        flush(self._producer)
        stop = threading.Event()
        last = threading.Thread(target=self.run, args=(stop,))
        last.start()
        try:
            standstill = Standstill(f"{self.sent} records are shared")
            while len(self.seen) < self.sent:
                standstill.check(len(self.seen))
                time.sleep(0.1)  # another thread reads
        finally:
            stop.set()
            last.join(STANDSTILL_S)
        assert set(self.seen) == set(range(self.sent))
        assert set(self.by_client) == {"librdkafka", *(run.args[0] for run in self.runs)}, self.by_client
        again = self.seen.total() - self.sent
        return f"{self.sent} shared ({again} of them again; {dict(sorted(self.by_client.items()))})"


class Migration:
    """Moves the nodes, and measures how long clients wait."""

    def __init__(self, cluster: MixedCluster, acknowledged: Acknowledged, rng: random.Random) -> None:
        self.cluster, self._acknowledged, self._rng = cluster, acknowledged, rng
        self.waits: list[tuple[str, float]] = []

    def settle(self, what: str) -> None:
        """Returns when clients go on and every replica is in sync again; a foreign client has a turn."""
        began = time.monotonic()
        self._acknowledged.wait_for_more(self._rng.randrange(1, 1000))
        self.waits.append((what, time.monotonic() - began))
        for topic in ("log-none", "numbers-Java", "__consumer_offsets", "__transaction_state"):
            self.cluster.wait_in_sync(topic, (1, 2, 3))
        self.cluster.barnabas("cluster", "elect")
        self._go()

    def _go(self) -> None:
        """franz-go writes a topic, and reads it in a group."""
        topic = f"go-{len(self.waits)}"
        with self.cluster.admin() as admin:
            admin.create_topic(topic, 2, 3)
        run_go(self.cluster.bootstrap, topic, 100, "none", "produce")
        rows = run_go(self.cluster.bootstrap, topic, 100, "goers", "consume")
        assert sorted(row["value"] for row in rows) == sorted(f"go-{number}" for number in range(100))

    def swap(self, node_id: int, program: Program) -> None:
        """The steps of docs/MIGRATION.md."""
        node = self.cluster[node_id]
        self.cluster.barnabas("cluster", "drain", str(node_id), "--leaders-only")
        node.stop()
        self._acknowledged.wait_for_more(self._rng.randrange(1, 500))
        node.start(program)
        self.settle(f"{node_id} runs {program}")

    def kill(self, node_id: int) -> None:
        node = self.cluster[node_id]
        program = node.program
        assert program is not None
        node.kill()
        self._acknowledged.wait_for_more(self._rng.randrange(1, 500))
        node.start(program)
        self.settle(f"{node_id} ({program}) was killed")

    def there_and_back(self) -> None:
        nodes = [1, 2, 3]
        programs: tuple[Program, Program] = ("barnabas", "kafka")
        for program in programs:
            self._rng.shuffle(nodes)
            for node_id in nodes:
                self.swap(node_id, program)
                self.kill(self._rng.choice(nodes))


@pytest.mark.slow
@pytest.mark.timeout(1800 * ROUNDS)
@pytest.mark.parametrize("version", [KAFKA_VERSION, OLDER_VERSION])
def test_a_cluster_moves_to_barnabas_and_back_under_load(tmp_path: Path, version: str) -> None:
    """Apache Kafka 3.9 has neither share groups nor, without further settings, groups of the new protocol."""
    classes = tmp_path / "classes"
    subprocess.run(
        ["javac", "-cp", clients_classpath(), "-d", str(classes), str(JAVA / "TransactionalCopier.java")],
        check=True,
        timeout=120,
    )

    def java(bootstrap: str, source: str, target: str, group: str) -> list[str]:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{clients_classpath()}:{classes}"]
        return [*command, "TransactionalCopier", bootstrap, source, target, group, str(PER_TRANSACTION)]

    def franz_go(bootstrap: str, source: str, target: str, group: str) -> list[str]:
        return [str(go_program()), "copy", bootstrap, source, target, group, str(PER_TRANSACTION)]

    roles = dict.fromkeys((1, 2, 3), "broker,controller")
    with MixedCluster(tmp_path, roles, replicas=3, settings=SETTINGS, version=version) as cluster:
        cluster.start(dict.fromkeys(roles, "kafka"))
        copiers = {"librdkafka": librdkafka, "Java": java, "franz-go": franz_go}
        print(f"seed {SEED}:", migrate(cluster, copiers, tmp_path, newest=version == KAFKA_VERSION))


def share_commands(bootstrap: str) -> dict[str, list[str]]:
    """The programs that take part in the share group."""
    java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", clients_classpath(), str(JAVA / "ShareReader.java")]
    queue = [bootstrap, "queue", "sharers"]
    return {"Java": [*java, *queue], "franz-go": [str(go_program()), "share", *queue]}


def migrate(cluster: MixedCluster, copiers: Mapping[str, Command], folder: Path, *, newest: bool) -> str:
    """Run the load, move all nodes there and back, and check every acknowledgement. Returns the counts as text."""
    address = cluster.bootstrap
    create_logs(address, 3, "internal.segment.bytes" if newest else "segment.bytes")
    acknowledged = Acknowledged()
    writers = [Writer(address, codec, acknowledged) for codec in CODECS]
    committer = Committer(address, "committers", "log-none")
    administrator = Administrator(address, replicas=3, pause_s=1)
    readers = {
        protocol: Readers(address, f"{protocol}-readers", writers[0].topic, protocol)
        for protocol in (("classic", "consumer") if newest else ("classic",))
    }
    sharers = Sharers(address, folder, share_commands(address)) if newest else None
    copies = [Copies(address, folder, name, command) for name, command in copiers.items()]
    migration = Migration(cluster, acknowledged, random.Random(SEED))
    stop = threading.Event()
    jobs: list[Callable[[threading.Event], None]] = [committer.run, administrator.run]
    jobs += [sharers.feed, sharers.run, sharers.run, *sharers.runs] if sharers else []
    jobs += [group.run for group in readers.values() for _ in range(2)]
    jobs += [copy.run for copy in copies] + [writer.run for writer in writers]
    workers = [threading.Thread(target=job, args=(stop,)) for job in jobs]
    for worker in workers:
        worker.start()
    try:
        acknowledged.wait_for_more(100)
        for _ in range(ROUNDS):
            migration.there_and_back()
    finally:
        stop.set()
        for worker in workers:
            worker.join(STANDSTILL_S)
    for writer in writers:
        writer.finish()
    records = sum(writer.check(address) for writer in writers)
    read = ", ".join(
        f"{group.check(writers[0].sent)} read by a {protocol} group ({group.again} of them again, "
        f"{group.rebalances} assignments)"
        for protocol, group in readers.items()
    )
    committer.check(address, "committers")
    administrator.check(address)
    copied = ", ".join(f"{copy.check()} copied by {copy.name}" for copy in copies)
    shared = sharers.check() if sharers else "none shared"
    waits = sorted(wait for _, wait in migration.waits)
    return (
        f"{records} records, {read}, {copied}, {shared}, {committer.promised} commits, "
        f"{len(administrator.created)} topics; until work went on: median {waits[len(waits) // 2]:.2f} s, "
        f"longest {waits[-1]:.2f} s\n" + "\n".join(f"  {what}: {wait:.2f} s" for what, wait in migration.waits)
    )
