"""Foreign clients of Connect's REST API against our worker: kafka-connect-py and kafkaconnect, both from PyPI."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_connect.kafka_connect import KafkaConnect
from kafkaconnect.connect import Connect
from requests.exceptions import HTTPError

from barnabas.spark.connectors.connect.server import ConnectServer
from barnabas.spark.connectors.connect.worker_config import parse_worker_config
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.unit.spark.connectors.connect.memory_connect import MemoryRuntime

CONFIG = {"connector.class": "Memory", "path": "p", "topics": "orders", "tasks.max": "2"}


class WorkerThread:
    """A worker on an event loop and a thread of its own."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.runtime = MemoryRuntime()
        self._server: ConnectServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(properties)), daemon=True)
        self._thread.start()
        assert self._ready.wait(120)

    async def _run(self, properties: dict[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = ConnectServer(parse_worker_config(properties), self.runtime)
        await self._server.run(lambda _: self._ready.set())

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def stop(self) -> None:
        assert self._loop is not None and self._server is not None
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def worker(broker: BrokerProcess, tmp_path: Path) -> Iterator[WorkerThread]:
    running = WorkerThread(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": tmp_path.name,
            "config.storage.topic": f"{tmp_path.name}-configs",
            "status.storage.topic": f"{tmp_path.name}-status",
            "storage.location": str(tmp_path),
            "listeners": "http://127.0.0.1:0",
        }
    )
    yield running
    running.stop()


def wait_for(read: Callable[[], Any], expected: Any) -> None:
    """Wait until the worker has done what was requested."""

    def reached() -> bool:
        try:
            return bool(read() == expected)
        except (HTTPError, ValueError):
            return False  # no status yet

    wait_until(reached, f"the answer is {expected!r}")


def test_kafka_connect_py_manages_a_connector(worker: WorkerThread) -> None:
    client = KafkaConnect(worker.url)
    assert set(client.get_cluster_info()) == {"version", "commit", "kafka_cluster_id"}
    assert client.list_connector_plugins() == [{"class": "Memory", "type": "sink", "version": "1.0"}]
    assert client.validate_connector_config("Memory", {"connector.class": "Memory"})["error_count"] == 1
    with pytest.raises(HTTPError, match="400"):
        client.create_connector({"name": "n", "config": {"connector.class": "Memory"}})
    created = client.create_connector({"name": "n", "config": CONFIG})
    assert (created["name"], created["type"]) == ("n", "sink")
    with pytest.raises(HTTPError, match="409"):
        client.create_connector({"name": "n", "config": CONFIG})

    def states() -> list[str]:
        status = client.get_connector_status("n")
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    wait_for(states, ["RUNNING", "RUNNING", "RUNNING"])
    assert client.list_connectors(state="running") == ["n"]
    assert [task["id"]["task"] for task in client.list_connector_tasks("n")] == [0, 1]
    assert client.get_connector_task_status("n", 1)["state"] == "RUNNING"
    wait_for(lambda: client.list_connector_topics("n"), {"n": {"topics": ["orders"]}})
    client.reset_connector_topics("n")
    client.pause_all_connectors()
    wait_for(states, ["PAUSED", "PAUSED", "PAUSED"])
    client.resume_connector("n")
    wait_for(states, ["RUNNING", "RUNNING", "RUNNING"])
    updated = client.update_connector("n", {**CONFIG, "tasks.max": "1"})
    assert updated["config"]["tasks.max"] == "1"
    wait_for(states, ["RUNNING", "RUNNING"])
    assert client.restart_connector("n", include_tasks=True)["connector"]["state"] == "RESTARTING"
    wait_for(states, ["RUNNING", "RUNNING"])
    client.restart_connector_task("n", 0)
    client.stop_connector("n")
    wait_for(states, ["STOPPED"])
    client.delete_connector("n")
    assert client.list_connectors() == []
    wait_until(lambda: not worker.runtime.running, "the connector is stopped")


def test_kafkaconnect_manages_a_connector(worker: WorkerThread) -> None:
    client = Connect(connect_url=worker.url)
    client.create_or_update("n", json.dumps(CONFIG))
    wait_for(lambda: json.loads(client.status("n"))["connector"]["state"], "RUNNING")
    assert json.loads(client.list()) == ["n"]
    assert json.loads(client.config("n"))["path"] == "p"
    assert json.loads(client.info("n"))["type"] == "sink"
    client.pause("n")
    wait_for(lambda: json.loads(client.status("n"))["connector"]["state"], "PAUSED")
    client.resume("n")
    wait_for(lambda: json.loads(client.status("n"))["connector"]["state"], "RUNNING")
    client.remove("n")
    assert json.loads(client.list()) == []
