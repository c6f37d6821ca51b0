"""Shell: Kafka Connect, standalone, with Debezium's connectors from Maven Central: the peer of our connectors.

The worker starts without a connector. A benchmark then creates connectors with the REST API, so that the start of the
JVM is not counted.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.jars import KAFKA_VERSION, resolve

from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_port
from bench.servers import KAFKA_JVM_FLAGS

DEBEZIUM: Final = {"postgres": "3.6.0.Final", "mariadb": "3.5.0.Final", "jdbc": "3.5.0.Final"}
START_SECONDS: Final = 120.0

_WORKER = """bootstrap.servers={servers}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable={schemas}
value.converter.schemas.enable={schemas}
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=10000
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
"""


def connect_classpath(connector: str) -> str:
    """The class path of Kafka Connect with one of Debezium's connectors: a key of DEBEZIUM."""
    kafka = (
        f"org.apache.kafka:{name}:{KAFKA_VERSION}" for name in ("connect-runtime", "connect-json", "connect-transforms")
    )
    return f"{resolve(f'io.debezium:debezium-connector-{connector}:{DEBEZIUM[connector]}', *kafka)}/*"


class KafkaConnect:
    """`with KafkaConnect(folder, servers, "postgres") as connect: connect.create(name, config)`."""

    def __init__(self, folder: Path, servers: str, connector: str, *, schemas: bool = False) -> None:
        self.port = free_port()
        self.log_path = folder / "connect.log.txt"
        self._classpath = connect_classpath(connector)
        self._worker = folder / "worker.properties"
        folder.mkdir(parents=True, exist_ok=True)
        self._worker.write_text(
            _WORKER.format(servers=servers, folder=folder, port=self.port, schemas=str(schemas).lower())
        )
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KafkaConnect:
        command = ["java", *KAFKA_JVM_FLAGS.split(), "-cp", self._classpath]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(self._worker)]
        with self.log_path.open("ab") as log:
            self.process = start_child(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self._wait(lambda: bool(self.request("GET", "/")), "the REST API does not answer")
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, and return when its task runs."""
        self.request("POST", "/connectors", {"name": name, "config": dict(config)})
        self._wait(lambda: self._runs(name), f"the connector {name} does not run")

    def exists(self, name: str) -> bool:
        return name in self.request("GET", "/connectors")

    def resume(self, name: str) -> None:
        """Start a connector that was stopped, and return when its task runs."""
        self.request("PUT", f"/connectors/{name}/resume")
        self._wait(lambda: self._runs(name), f"the connector {name} does not run")

    def failure(self) -> str | None:
        """The trace of a task that has failed, if one has."""
        for name in self.request("GET", "/connectors"):
            for task in self.request("GET", f"/connectors/{name}/status")["tasks"]:
                if task["state"] == "FAILED":
                    return str(task["trace"])
        return None

    def stack_of_tasks(self) -> str:
        """The Java stacks of the threads that run tasks."""
        assert self.process is not None
        command = ["jstack", str(self.process.pid)]
        threads = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.split("\n\n")
        return "\n\n".join(thread for thread in threads if thread.startswith('"task-thread-'))

    def stop_all(self) -> None:
        """Stop every connector; a stopped one has no task and keeps its offsets."""
        for name in self.request("GET", "/connectors"):
            self.request("PUT", f"/connectors/{name}/stop")
            self._wait(lambda name=name: not self.request("GET", f"/connectors/{name}/tasks"), f"{name} does not stop")

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the REST API. Returns the JSON of the response, None if it has no body."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
        return json.loads(text) if text else None

    def _runs(self, name: str) -> bool:
        tasks = self.request("GET", f"/connectors/{name}/status")["tasks"]
        if any(task["state"] == "FAILED" for task in tasks):
            raise RuntimeError(tasks[0]["trace"])
        return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

    def _wait(self, done: Any, problem: str) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if done():
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass  # the worker starts, or the connector is not known yet
            time.sleep(0.1)
        raise RuntimeError(f"{problem}; the end of the log of Connect:\n{self.log_path.read_text()[-3000:]}")
