"""Shell: a real Apache Kafka of one node: broker and controller in one, or an old broker beside its ZooKeeper."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_ports
from tests.interop.jars import KAFKA_VERSION, kafka_classpath, zookeeper_kafka_classpath

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}{more}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}{more}
controller.listener.names=CONTROLLER
log.dirs={data}
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""
_OLD_PROPERTIES = """
broker.id=1
zookeeper.connect=127.0.0.1:{zookeeper}
listeners=PLAINTEXT://127.0.0.1:{broker}
log.dirs={data}
"""
_SMALL = """
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
log.segment.bytes=1048576
group.initial.rebalance.delay.ms=0
"""
"""Internal topics of one partition and one replica, small segments, and groups that do not wait for more members."""


_OF_FORMAT = ("node.id", "process.roles", "log.dir", "metadata.log.dir", "controller.quorum", "inter.broker.protocol")
"""Settings that change what a formatted directory contains."""
_FORMATTED: dict[tuple[str, ...], dict[str, bytes]] = {}
"""The files of a formatted directory, by the version and by those settings."""


class JavaBroker:
    """Started with `running()`; `stop` is SIGTERM, `kill` is kill -9."""

    def __init__(self, root: Path, port: int, config: Path, classpath: str) -> None:
        self._root, self._port, self._config, self._classpath = root, port, config, classpath
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's own tools to its end; what it printed."""
        done = self._java(name, *arguments)
        out, _ = done.communicate(timeout=180)
        assert done.returncode == 0, out.decode()
        return out.decode()

    def _logging(self) -> Sequence[str]:
        """The options of Java for the log."""
        path = self._root / "log4j2.yaml"
        path.write_text("Configuration:\n  Loggers:\n    Root:\n      level: WARN\n")
        return [f"-Dlog4j2.configurationFile={path}"]

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", *self._logging()]
        return start_child(
            ["java", *options, "-cp", self._classpath, name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._root,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )

    def start(self) -> None:
        self._process = self._java("kafka.Kafka", str(self._config))
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                out = self._process.stdout.read().decode() if self._process.stdout else ""
                raise RuntimeError(f"Apache Kafka did not start:\n{out}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.1)  # between two attempts to connect to a process that is starting
        raise TimeoutError("Apache Kafka did not listen within 90 s")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.communicate(timeout=90)

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        self.start()
        try:
            yield self
        finally:
            self.close()

    def close(self) -> None:
        """End everything that runs."""
        self.kill()


class ApacheKafka(JavaBroker):
    """A broker and controller in one. `settings` are lines of server.properties."""

    def __init__(
        self,
        root: Path,
        settings: Sequence[str] = (),
        *,
        more_listeners: Sequence[str] = (),
        version: str = KAFKA_VERSION,
    ) -> None:
        self.version = version
        self.data = root / "kafka-data"
        port, controller = free_ports(2)
        super().__init__(root, port, root / "server.properties", kafka_classpath(version))
        properties = _PROPERTIES.format(
            broker=port,
            controller=controller,
            data=self.data,
            more="".join(f",{listener}" for listener in more_listeners),
        )
        self._config.write_text(properties + _SMALL + "".join(f"{line}\n" for line in settings))
        if not self.data.exists():
            self._format([line for line in settings if line.startswith(_OF_FORMAT)])

    def _format(self, settings: Sequence[str]) -> None:
        """Another JVM takes two seconds of CPU to write the same two files, so they are written once in a process."""
        key = (self.version, *settings)
        if key in _FORMATTED:
            self.data.mkdir(parents=True)
            for name, content in _FORMATTED[key].items():
                (self.data / name).write_bytes(content)
            return
        done = self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config))
        out, _ = done.communicate(timeout=120)
        assert done.returncode == 0, out.decode()
        _FORMATTED[key] = {path.name: path.read_bytes() for path in self.data.iterdir()}


class ZooKeeperKafka(JavaBroker):
    """A broker of a version that has no controllers of its own, and a ZooKeeper server."""

    def __init__(self, root: Path, settings: Sequence[str] = (), *, version: str) -> None:
        port, zookeeper = free_ports(2)
        super().__init__(root, port, root / "server.properties", zookeeper_kafka_classpath(version))
        self._zookeeper_config = root / "zookeeper.properties"
        self._zookeeper: subprocess.Popen[bytes] | None = None
        self._zookeeper_config.write_text(
            f"dataDir={root / 'zookeeper'}\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\n"
        )
        properties = _OLD_PROPERTIES.format(broker=port, zookeeper=zookeeper, data=root / "kafka-data")
        self._config.write_text(properties + _SMALL + "".join(f"{line}\n" for line in settings))

    def start(self) -> None:
        if self._zookeeper is None:
            self._zookeeper = self._java(
                "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._zookeeper_config)
            )
        super().start()

    def close(self) -> None:
        super().close()
        process, self._zookeeper = self._zookeeper, None
        if process is not None:
            process.kill()
            process.communicate()

    def _logging(self) -> Sequence[str]:
        path = self._root / "log4j.properties"
        path.write_text(
            "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
        )
        return [f"-Dlog4j.configuration={path.as_uri()}"]
