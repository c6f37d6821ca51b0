"""Shell: clusters under test: three nodes that are broker and controller at once, or controllers of their own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from barnabas.core.child_processes import start_child
from barnabas.core.ids import uuid_to_text
from barnabas.core.rng import random_uuid, system_rng
from barnabas.testing.ports import free_ports
from barnabas.testing.process_cluster import FIRST_CONTROLLER, ClusterProcess
from bench.servers import KAFKA_JVM_FLAGS, wait_serving


class Cluster(Protocol):
    """What a benchmark needs of one. Brokers are 1 and up, controllers of their own 101 and up."""

    name: str
    bootstrap_servers: str
    controller_ids: list[int]

    def start(self) -> None: ...

    def launch(self, node_id: int) -> None:
        """Start a node again; returns when it answers."""
        ...

    def kill(self, node_id: int) -> None:
        """kill -9"""
        ...

    def pause(self, node_id: int) -> None:
        """SIGSTOP"""
        ...

    def resume(self, node_id: int) -> None:
        """SIGCONT"""
        ...

    def stop_node(self, node_id: int) -> None:
        """SIGTERM, until it is gone."""
        ...

    def stop(self) -> None: ...

    def pids(self) -> list[int]: ...


class BarnabasCluster(ClusterProcess):
    """Ours, as `barnabas cluster up` starts it."""

    name = "barnabas"

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        controllers: int = 0,
        hosts: Sequence[str] = (),
        prefixes: Sequence[Sequence[str]] = (),
    ) -> None:
        super().__init__(folder / "barnabas", brokers=brokers, controllers=controllers, hosts=hosts, prefixes=prefixes)

    def launch(self, node_id: int) -> None:
        self.node(node_id).start()

    def kill(self, node_id: int) -> None:
        self.node(node_id).kill()

    def stop_node(self, node_id: int) -> None:
        self.node(node_id).stop(60)

    def pause(self, node_id: int) -> None:
        """SIGSTOP"""
        self.node(node_id).pause()

    def resume(self, node_id: int) -> None:
        self.node(node_id).resume()

    def pids(self) -> list[int]:
        return [node.process.pid for node in self.nodes.values() if node.process is not None]


class KafkaCluster:
    """Apache Kafka's, with its own defaults and the JVM flags of `kafka-server-start.sh`."""

    name = "kafka"

    def __init__(self, folder: Path, classpath: str, *, brokers: int = 3, controllers: int = 0) -> None:
        self._classpath = classpath
        own = range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
        broker_ids = range(1, brokers + 1)
        self.controller_ids = list(own) or list(broker_ids)
        ids = [*broker_ids, *own]
        free = free_ports(2 * len(ids))
        clients, quorum = dict(zip(ids, free[: len(ids)], strict=True)), dict(zip(ids, free[len(ids) :], strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{quorum[node]}" for node in self.controller_ids)
        cluster_id = uuid_to_text(random_uuid(system_rng()))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: dict[int, int] = {}
        self._files: dict[int, Path] = {}
        for node in ids:
            home = folder / f"kafka-{node}"
            home.mkdir(parents=True)
            roles, listeners = [], []
            if node in broker_ids:
                roles.append("broker")
                listeners.append(f"PLAINTEXT://127.0.0.1:{clients[node]}")
            if node in self.controller_ids:
                roles.append("controller")
                listeners.append(f"CONTROLLER://127.0.0.1:{quorum[node]}")
            self._ports[node] = clients[node] if node in broker_ids else quorum[node]
            self._files[node] = home / "server.properties"
            self._files[node].write_text(
                f"""process.roles={",".join(roles)}
node.id={node}
controller.quorum.voters={voters}
listeners={",".join(listeners)}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={home / "logs"}
"""
            )
            command = ["java", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", cluster_id]
            subprocess.run([*command, "-c", str(self._files[node])], check=True, capture_output=True, timeout=120)
        self.bootstrap_servers = ",".join(f"127.0.0.1:{clients[node]}" for node in broker_ids)

    def start(self) -> None:
        for node in self._files:
            self._spawn(node)
        for port in self._ports.values():
            wait_serving(port, time.monotonic() + 120)

    def launch(self, node_id: int) -> None:
        self._spawn(node_id)
        wait_serving(self._ports[node_id], time.monotonic() + 120)

    def _spawn(self, node: int) -> None:
        home = self._files[node].parent
        with (home / "log.txt").open("ab") as log:
            self._processes[node] = start_child(
                ["java", *KAFKA_JVM_FLAGS.split(), "-cp", self._classpath, "kafka.Kafka", str(self._files[node])],
                stdout=log, stderr=subprocess.STDOUT, cwd=home,
            )  # fmt: skip

    def kill(self, node_id: int) -> None:
        self._processes[node_id].kill()
        self._processes[node_id].wait()

    def stop_node(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGTERM)
        self._processes[node_id].wait(120)

    def pause(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        self._processes[node_id].send_signal(signal.SIGCONT)

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


def clusters(peer: str | None, folder: Path, *, brokers: int = 3, controllers: int = 0) -> list[Cluster]:
    """Ours, and the peer's to be measured beside it."""
    found: list[Cluster] = [BarnabasCluster(folder, brokers=brokers, controllers=controllers)]
    if peer == "kafka":
        from tests.interop.jars import kafka_classpath

        if shutil.which("java") is None:
            raise SystemExit("--peer kafka needs Java 17 and Maven")
        found.append(KafkaCluster(folder, kafka_classpath(), brokers=brokers, controllers=controllers))
    return found
