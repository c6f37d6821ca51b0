"""Shell: clusters of three under test: nodes that are broker and controller at once, each as it starts by default."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Final, Protocol

from barnabas.core.ids import uuid_to_text
from barnabas.testing.process_cluster import ClusterProcess
from bench.servers import KAFKA_JVM_FLAGS, free_port, wait_serving

NODES: Final = (1, 2, 3)


class Cluster(Protocol):
    """What a benchmark needs of one. Nodes are 1, 2 and 3."""

    name: str
    bootstrap_servers: str

    def start(self) -> None: ...

    def launch(self, node_id: int) -> None:
        """Start a node again; returns when it answers."""
        ...

    def kill(self, node_id: int) -> None:
        """kill -9"""
        ...

    def stop_node(self, node_id: int) -> None:
        """SIGTERM, until it is gone."""
        ...

    def stop(self) -> None: ...

    def pids(self) -> list[int]: ...


class BarnabasCluster(ClusterProcess):
    """Ours, as `barnabas cluster up` starts it."""

    name = "barnabas"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "barnabas")

    def launch(self, node_id: int) -> None:
        self.node(node_id).start()

    def kill(self, node_id: int) -> None:
        self.node(node_id).kill()

    def stop_node(self, node_id: int) -> None:
        self.node(node_id).stop(60)

    def pids(self) -> list[int]:
        return [node.process.pid for node in self.nodes.values() if node.process is not None]


class KafkaCluster:
    """Apache Kafka's, with its own defaults for three nodes and the JVM flags of `kafka-server-start.sh`."""

    name = "kafka"

    def __init__(self, folder: Path, classpath: str) -> None:
        self._classpath = classpath
        self._ports = {node: free_port() for node in NODES}
        controllers = {node: free_port() for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        cluster_id = uuid_to_text(uuid.uuid4())
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._files: dict[int, Path] = {}
        for node in NODES:
            home = folder / f"kafka-{node}"
            home.mkdir(parents=True)
            self._files[node] = home / "server.properties"
            self._files[node].write_text(
                f"""process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{self._ports[node]},CONTROLLER://127.0.0.1:{controllers[node]}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={home / "logs"}
"""
            )
            command = ["java", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", cluster_id]
            subprocess.run([*command, "-c", str(self._files[node])], check=True, capture_output=True, timeout=120)
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def start(self) -> None:
        for node in NODES:
            self._spawn(node)
        for node in NODES:
            wait_serving(self._ports[node], time.monotonic() + 120)

    def launch(self, node_id: int) -> None:
        self._spawn(node_id)
        wait_serving(self._ports[node_id], time.monotonic() + 120)

    def _spawn(self, node: int) -> None:
        home = self._files[node].parent
        with (home / "log.txt").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                ["java", *KAFKA_JVM_FLAGS.split(), "-cp", self._classpath, "kafka.Kafka", str(self._files[node])],
                stdout=log, stderr=subprocess.STDOUT, cwd=home,
            )  # fmt: skip

    def kill(self, node_id: int) -> None:
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def stop_node(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGTERM)
        self._processes[node_id].wait(120)

    def stop(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]
