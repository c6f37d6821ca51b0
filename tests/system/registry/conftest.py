"""A broker and a registry in this process, on loops of their own; and what stops and starts the registry again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pytest

from barnabas.registry import RegistryServer
from barnabas.testing.embedded import EmbeddedBroker


class RunningRegistry:
    """A registry in a thread; `with RunningRegistry(bootstrap_servers) as registry: registry.url`."""

    def __init__(self, bootstrap_servers: str, topic: str = "_schemas", *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._settings = {"bootstrap.servers": bootstrap_servers}
        self._topic = topic
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.url = ""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(30)
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as failure:  # noqa: BLE001 - handed to the test's thread
            self._failure = failure
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = RegistryServer(
            self._settings, listener="http://127.0.0.1:0", topic=self._topic, read_only=self._read_only
        )
        await self._server.run(self._on_ready)

    def _on_ready(self, server: RegistryServer) -> None:
        self.url = server.url
        self._ready.set()


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def schemas_topic(request: pytest.FixtureRequest) -> str:
    """A topic of its own for each test: each begins with an empty registry."""
    return f"_schemas_{request.node.name}"[:200].replace("[", "_").replace("]", "_")


@pytest.fixture
def registry(broker: EmbeddedBroker, schemas_topic: str) -> Iterator[RunningRegistry]:
    with RunningRegistry(broker.bootstrap_servers, schemas_topic) as running:
        yield running
