"""Two workers on an embedded broker: they share the connectors, and one continues those of the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.connectors.connect.memory_connect import MemoryRuntime

from barnabas.client.errors import BootstrapError
from barnabas.protocol.transport.http.messages import HttpRequest
from barnabas.spark.connectors.connect.server import ConnectServer
from barnabas.spark.connectors.connect.worker_config import ConnectWorkerConfig, parse_worker_config
from barnabas.testing.embedded import AsyncEmbeddedBroker

BROKER = {"group.min.session.timeout.ms": "100"}
PATIENCE_S = 120.0


def worker_config(servers: str, shared: Path, **more: str) -> ConnectWorkerConfig:
    return parse_worker_config(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "config.storage.topic": "connect-configs",
            "status.storage.topic": "connect-status",
            "storage.location": str(shared),
            "listeners": "http://127.0.0.1:0",
            "session.timeout.ms": "1500",
            "heartbeat.interval.ms": "200",
            **{name.replace("_", "."): text for name, text in more.items()},
        }
    )


class Worker:
    """A worker in this process. `kill` ends it without leaving the group."""

    def __init__(self, config: ConnectWorkerConfig) -> None:
        self.runtime = MemoryRuntime()
        self.server = ConnectServer(config, self.runtime)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Worker:
        ready = asyncio.Event()
        self._task = asyncio.create_task(self.server.run(lambda _: ready.set()))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            await self._task
        return self

    async def stop(self) -> None:
        assert self._task is not None
        self.server.stop()
        await self._task

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def running(self) -> list[str]:
        return sorted(self.runtime.running)

    async def call(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        raw = b"" if body is None else json.dumps(body).encode()
        response = await self.server._app(HttpRequest(method, target, {}, raw))
        return response.status, json.loads(response.body) if response.body else None


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():
            await asyncio.sleep(0.02)  # the workers have threads of their own


def test_workers_share_connectors_and_replace_a_dead_one(tmp_path: Path) -> None:
    async def play() -> None:
        async with AsyncEmbeddedBroker(BROKER) as broker:
            config = worker_config(broker.bootstrap_servers, tmp_path)
            one = await Worker(config).start()
            for name in ("n1", "n2", "n3", "n4"):
                body = {"name": name, "config": {"connector.class": "Memory", "path": "p"}}
                assert (await one.call("POST", "/connectors", body))[0] == 201

            async def all_on_one() -> bool:
                return len(one.running) == 4

            await until(all_on_one)
            assert sorted(one.runtime.events) == ["start n1", "start n2", "start n3", "start n4"]
            two = await Worker(config).start()

            async def divided() -> bool:
                return len(one.running) == len(two.running) == 2 and set(one.running).isdisjoint(two.running)

            await until(divided)
            assert await two.call("PUT", f"/connectors/{one.running[0]}/pause") == (202, None)

            async def paused() -> bool:
                return len(one.running) == 1

            await until(paused)
            left = one.running
            await one.kill()

            async def replaced() -> bool:
                status, document = await two.call("GET", f"/connectors/{left[0]}/status")
                worker = f"127.0.0.1:{two.server._http.port}"
                return len(two.running) == 3 and (status, document["connector"]["worker_id"]) == (200, worker)

            await until(replaced)
            await two.stop()
            assert two.running == []
            three = await Worker(config).start()
            assert (await three.call("GET", "/connectors"))[1] == ["n1", "n2", "n3", "n4"]

            async def resumed() -> bool:
                return len(three.running) == 3

            await until(resumed)
            await three.stop()

    asyncio.run(play())


def test_a_worker_that_cannot_reach_its_group_stops_its_connectors(tmp_path: Path) -> None:
    async def play() -> None:
        async with AsyncEmbeddedBroker(BROKER) as broker:
            worker = await Worker(worker_config(broker.bootstrap_servers, tmp_path)).start()
            body = {"name": "n", "config": {"connector.class": "Memory", "path": "p"}}
            await worker.call("POST", "/connectors", body)

            async def runs() -> bool:
                return worker.running == ["n"]

            await until(runs)

        async def stopped() -> bool:
            return worker.running == []

        await until(stopped)
        await worker.kill()

    asyncio.run(play())


def test_a_worker_without_a_cluster_fails_at_once(tmp_path: Path) -> None:
    config = worker_config("127.0.0.1:1", tmp_path, socket_connection_setup_timeout_ms="500")
    with pytest.raises(BootstrapError, match=r"bootstrap\.servers"):
        asyncio.run(ConnectServer(config, MemoryRuntime()).run())
