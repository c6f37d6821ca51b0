"""Shell: a real Apache Kafka, one combined broker and controller, for tests that trade data directories with it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_ports
from tests.interop.jars import KAFKA_VERSION, kafka_classpath

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}{more}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}{more}
controller.listener.names=CONTROLLER
log.dirs={data}
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.segment.bytes=1048576
group.initial.rebalance.delay.ms=0
"""


class ApacheKafka:
    """Started with `running()`; `stop` is SIGTERM, `kill` is kill -9. `settings` are lines of server.properties."""

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
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None
        self._port, controller = free_ports(2)
        self._config = root / "server.properties"
        properties = _PROPERTIES.format(
            broker=self._port,
            controller=controller,
            data=self.data,
            more="".join(f",{listener}" for listener in more_listeners),
        )
        self._config.write_text(properties + "".join(f"{line}\n" for line in settings))
        (root / "log4j2.yaml").write_text("Configuration:\n  Loggers:\n    Root:\n      level: WARN\n")
        if not self.data.exists():
            self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config)).wait(120)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def tool(self, name: str, *arguments: str) -> str:
        """Run one of Kafka's own tools to its end; what it printed."""
        done = self._java(name, *arguments)
        out, _ = done.communicate(timeout=180)
        assert done.returncode == 0, out.decode()
        return out.decode()

    def _java(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={self._root}/log4j2.yaml"]
        return start_child(
            ["java", *options, "-cp", kafka_classpath(self.version), name, *arguments],
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
    def running(self) -> Iterator[ApacheKafka]:
        self.start()
        try:
            yield self
        finally:
            self.kill()
