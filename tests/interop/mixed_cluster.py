"""Shell: one cluster whose nodes run Apache Kafka or Barnabas, on one machine.

A node has one file of settings and one data directory, and keeps both when it changes from one program to the other.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas import Admin, TopicPartition
from barnabas.client.admin.topics import TopicDescription
from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_ports
from barnabas.testing.process import BrokerProcess
from tests.interop.jars import KAFKA_VERSION, kafka_classpath, logging_classpath
from tests.progress import wait_until

CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
Program = Literal["kafka", "barnabas"]

_PROPERTIES: Final = """\
node.id={node_id}
process.roles={roles}
{quorum}
listeners={listeners}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
default.replication.factor={replicas}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=2
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=2
group.initial.rebalance.delay.ms=0
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
log.cleaner.dedupe.buffer.size=16777216
"""


class MixedNode:
    """One node. `program` is what runs; None while nothing runs."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        roles: str,
        ports: tuple[int, int],
        quorum: str,
        replicas: int,
        settings: Sequence[str],
        version: str,
        format_options: Sequence[str],
        cluster_id: Callable[[], str],
        directories: int,
    ) -> None:
        """`format_options` are further words for `kafka-storage format`. `directories` is the number of log.dirs."""
        self.folder, self.node_id, self.roles, self.version = folder, node_id, roles, version
        self._format_options = format_options
        self._cluster_id = cluster_id
        self.data = folder / "data"
        self.log_dirs = [self.data, *(folder / f"data-{number}" for number in range(2, directories + 1))]
        self.log_path = folder / "log.txt"
        self.program: Program | None = None
        self._process: subprocess.Popen[bytes] | BrokerProcess | None = None
        self.client, self.controller = f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}"
        listeners = [f"PLAINTEXT://{self.client}"] if "broker" in roles else []
        listeners += [f"CONTROLLER://{self.controller}"] if "controller" in roles else []
        folder.mkdir(parents=True)
        self.properties = folder / "server.properties"
        text = _PROPERTIES.format(
            node_id=node_id,
            roles=roles,
            quorum=quorum,
            listeners=",".join(listeners),
            data=",".join(map(str, self.log_dirs)),
            replicas=replicas,
        )
        self.properties.write_text(text + "".join(f"{line}\n" for line in settings))

    # ---- the process

    def launch(self, program: Program) -> None:
        """Start the program without waiting until the node is ready."""
        assert self._process is None, "the node runs"
        if program == "barnabas":
            if self.version != KAFKA_VERSION:
                self._format()  # with the feature levels of that version
            self._process = BrokerProcess(self.data, config=self.properties)
            self._process.arguments = ["--data-dir", ",".join(map(str, self.log_dirs))]
            self._process.launch()
        else:
            self._format()
            self._process = self._java("kafka.Kafka", str(self.properties))
        self.program = program

    def wait_ready(self) -> None:
        process = self._process
        if isinstance(process, BrokerProcess):
            process.wait_ready()
            return
        assert process is not None

        def is_ready() -> bool:
            assert process.poll() is None, f"Apache Kafka ended:\n{self.log_path.read_text()[-4000:]}"
            return self._serves() if "broker" in self.roles else self._accepts()

        def log_size() -> int:  # grows while the node recovers its logs
            return self.log_path.stat().st_size if self.log_path.exists() else 0

        wait_until(is_ready, f"node {self.node_id} is ready", progress=log_size)

    def start(self, program: Program) -> None:
        self.launch(program)
        self.wait_ready()

    def stop(self) -> None:
        """SIGTERM, and wait for the end of the controlled shutdown."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        running, self._process, self.program = self._process, None, None
        process = running.process if isinstance(running, BrokerProcess) else running
        if process is not None:
            process.send_signal(number)
            process.wait(120)

    def _serves(self) -> bool:
        """Whether the broker serves clients, which it does when it is unfenced."""
        if not self._accepts():
            return False
        try:
            found = AdminClient({"bootstrap.servers": self.client, "log_level": 0}).list_topics(timeout=5)
        except KafkaException:
            return False
        return self.node_id in found.brokers

    def _accepts(self) -> bool:
        host, port = (self.client if "broker" in self.roles else self.controller).split(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return True
        return False

    # ---- Apache Kafka

    def _format(self) -> None:
        if not (self.data / "meta.properties").exists():
            words = ["format", "-t", self._cluster_id(), "-c", str(self.properties), *self._format_options]
            done = self._java("kafka.tools.StorageTool", *words)
            assert done.wait(120) == 0, self.log_path.read_text()[-4000:]

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options += [
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        ]
        with self.log_path.open("ab") as log:
            return start_child(
                ["java", *options, "-cp", f"{logging_classpath()}:{kafka_classpath(self.version)}", name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "LC_ALL": "C.UTF-8"},
            )

    def logs(self) -> str:
        """What both programs have logged."""
        ours = self.data.with_name("data.log.txt")
        return "\n".join(path.read_text(errors="replace") for path in (self.log_path, ours) if path.exists())


class MixedCluster:
    """`roles` are the roles of each node by id, for example {1: "broker,controller", 2: "broker"}. All controllers are
    voters, or with `dynamic` only the first one: it begins a dynamic quorum, to which others are added. `settings` are
    further lines of every server.properties. `version` is that of Apache Kafka."""

    def __init__(
        self,
        folder: Path,
        roles: Mapping[int, str],
        *,
        replicas: int = 2,
        settings: Sequence[str] = (),
        version: str = KAFKA_VERSION,
        dynamic: bool = False,
        directories: int = 1,
    ) -> None:
        ports = free_ports(2 * len(roles))
        places = dict(zip(roles, zip(ports[::2], ports[1::2], strict=True), strict=True))
        controllers = {node: f"127.0.0.1:{places[node][1]}" for node, role in roles.items() if "controller" in role}
        quorum = "controller.quorum.voters=" + ",".join(f"{node}@{place}" for node, place in controllers.items())
        if dynamic:
            quorum = "controller.quorum.bootstrap.servers=" + ",".join(controllers.values())
        first = next(iter(controllers))
        self.nodes = {
            node: MixedNode(
                folder / f"node-{node}", node, role, places[node], quorum, replicas, settings, version,
                () if not dynamic else ("--standalone",) if node == first else ("--no-initial-controllers",),
                self.cluster_id, directories,
            )
            for node, role in roles.items()
        }  # fmt: skip
        self.bootstrap = ",".join(node.client for node in self.nodes.values() if "broker" in node.roles)

    def cluster_id(self) -> str:
        """The id that the first node has created, if that is a node of Barnabas; otherwise the one for a new cluster.

        The nodes of a cluster start in the order of `start`, so that only the first one has no other to ask."""
        founders = [node for node in self.nodes.values() if node.program == "barnabas"]
        if not founders:
            return CLUSTER_ID
        files = [node.data / "meta.properties" for node in founders]
        wait_until(lambda: any(file.exists() for file in files), "the first node has created the cluster's id")
        text = next(file for file in files if file.exists()).read_text()
        return re.search(r"^cluster.id=(.*)$", text, re.M)[1]  # type: ignore[index]

    def __getitem__(self, node_id: int) -> MixedNode:
        return self.nodes[node_id]

    def start(self, programs: Mapping[int, Program]) -> None:
        """Start these nodes, and wait until all are ready."""
        for node_id, program in programs.items():
            self[node_id].launch(program)
        for node_id in programs:
            self[node_id].wait_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes.values():
            node.kill()

    # ---- administration

    def barnabas(self, *words: str) -> str:
        """Run a command of `barnabas` on the running brokers; its output."""
        running = ",".join(node.client for node in self.nodes.values() if node.program and "broker" in node.roles)
        command = [sys.executable, "-m", "barnabas", *words, "--bootstrap-server", running]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def admin(self) -> Iterator[Admin]:
        running = [node.client for node in self.nodes.values() if node.program and "broker" in node.roles]
        with Admin(bootstrap_servers=running) as admin:
            yield admin

    def describe(self, topic: str) -> TopicDescription:
        with self.admin() as admin:
            found = admin.describe_topics([topic])[topic]
        assert isinstance(found, TopicDescription), found
        return found

    def leaders(self, topic: str) -> list[int]:
        return [partition.leader for partition in self.describe(topic).partitions]

    def wait_in_sync(self, topic: str, brokers: Sequence[int]) -> None:
        """Returns when each partition of the topic has these brokers as its ISR."""
        wait_until(
            lambda: all(sorted(p.isr) == sorted(brokers) for p in self.describe(topic).partitions),
            f"{topic} is in sync on {brokers}",
            progress=lambda: [p.isr for p in self.describe(topic).partitions],
        )

    def lead(self, topic: str, broker: int) -> None:
        """Make `broker` the leader of all partitions of the topic, by a new order of their replicas and an election."""
        partitions = self.describe(topic).partitions
        targets = {
            TopicPartition(topic, p.partition): [broker, *(other for other in p.replicas if other != broker)]
            for p in partitions
        }
        with self.admin() as admin:
            refused = {tp: error for tp, error in admin.alter_partition_reassignments(targets).items() if error}
            assert not refused
            wait_until(lambda: not admin.list_partition_reassignments(targets), "the replicas have their new order")
            admin.elect_leaders(targets)
        wait_until(lambda: set(self.leaders(topic)) == {broker}, f"{broker} leads {topic}")
