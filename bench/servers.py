"""Shell: the brokers under test, each a process of its own, as it starts by default, behind the same few verbs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Protocol

from barnabas.core.child_processes import start_child
from barnabas.core.ids import uuid_to_text
from barnabas.core.rng import random_uuid, system_rng
from barnabas.testing.ports import free_port
from barnabas.testing.process import BrokerProcess
from bench.security import ADD_SCRAM, SecureListener

KAFKA_JVM_FLAGS = (
    "-Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true"
)
"""Those of kafka-server-start.sh."""


class Server(Protocol):
    """What a benchmark needs of a broker."""

    name: str
    bootstrap_servers: str
    start_seconds: float

    def start(self) -> None: ...

    def stop(self) -> object: ...

    def pid(self) -> int: ...


class Barnabas(BrokerProcess):
    """Ours, as `barnabas serve` starts it."""

    name = "barnabas"

    def __init__(self, folder: Path, secure: SecureListener | None = None) -> None:
        self._secure = secure
        settings: list[str] = []
        if secure is not None:
            self._plain_port, self._secure_port = free_port(), free_port()
            configs = secure.broker_settings(self._plain_port, self._secure_port)
            settings = [f"{name}={value}" for name, value in configs.items()]
        super().__init__(folder / "barnabas", settings=settings)

    def command(self) -> list[str]:
        users = ["--add-scram", ADD_SCRAM] if self._secure is not None and self._secure.has_sasl else []
        return [*super().command(), *users]

    def start(self, seconds: float = 30.0) -> None:
        """Counted to the same moment as for every broker, not to the line that says it is ready."""
        began = time.monotonic()
        super().start(seconds)
        wait_serving(self.port if self._secure is None else self._plain_port, began + seconds)
        self.start_seconds = time.monotonic() - began
        if self._secure is not None:
            self.bootstrap_servers = f"127.0.0.1:{self._secure_port}"

    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


class ApacheKafka:
    """Apache Kafka from Maven Central, combined broker and controller, with the settings and the JVM flags of its
    own `config/server.properties` and `kafka-server-start.sh`. Formatting its storage is not counted as start-up."""

    name = "kafka"

    def __init__(self, folder: Path, classpath: str, secure: SecureListener | None = None) -> None:
        self.folder = folder / "kafka"
        self.classpath = classpath
        self.port, controller = free_port(), free_port()
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        if secure is not None:
            secure_port = free_port()
            listeners = secure.broker_settings(self.port, secure_port)
            self.bootstrap_servers = f"127.0.0.1:{secure_port}"
        advertised = listeners["listeners"]
        listeners["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
        listener_lines = "\n".join(f"{name}={value}" for name, value in listeners.items())
        self.start_seconds = 0.0
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True)
        self.properties = self.folder / "server.properties"
        self.properties.write_text(
            f"""process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
{listener_lines}
advertised.listeners={advertised}
controller.listener.names=CONTROLLER
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
log.dirs={self.folder / "logs"}
num.partitions=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
        )
        users = ["--add-scram", ADD_SCRAM] if secure is not None and secure.has_sasl else []
        cluster_id = uuid_to_text(random_uuid(system_rng()))
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster_id, *users)

    def _java(self, main: str, *arguments: str) -> None:
        command = ["java", "-cp", self.classpath, main, *arguments, "-c", str(self.properties)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def start(self) -> None:
        began = time.monotonic()
        with (self.folder / "log.txt").open("ab") as log:
            command = ["java", *KAFKA_JVM_FLAGS.split(), "-cp", self.classpath, "kafka.Kafka", str(self.properties)]
            self.process = start_child(  # a session of its own, as ours has: the scheduler groups by session
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True
            )
        wait_serving(self.port, began + 90)
        self.start_seconds = time.monotonic() - began

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid


def find_server(name: str, folder: Path, secure: SecureListener | None = None) -> Server:
    """The broker of that name, not yet started, with its data under `folder`. With `secure`, its clients use that
    listener."""
    if name == "barnabas":
        return Barnabas(folder, secure)
    from tests.interop.jars import kafka_classpath

    if shutil.which("java") is None:
        raise SystemExit("PEER=kafka needs Java 17 and Maven: apt-get install openjdk-17-jre-headless maven")
    return ApacheKafka(folder, kafka_classpath(), secure)


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    """The processes that this one has started, and those that they have started."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found = parents.get(pid, [])
    return [*found, *(below for child in found for below in descendants(child))]


_API_VERSIONS_V0 = bytes.fromhex("0000000a001200000000000100 00".replace(" ", ""))


def wait_serving(port: int, deadline: float) -> None:
    """Ready means the same for every broker: it answers an ApiVersions request."""
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1.0) as probe:
                probe.settimeout(5.0)
                probe.sendall(_API_VERSIONS_V0)
                if len(probe.recv(4)) == 4:
                    return
        except OSError:
            time.sleep(0.005)
    raise RuntimeError(f"nothing answered on port {port}")
