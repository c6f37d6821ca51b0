"""`serve_beside` runs the services of a broker's process on an event loop of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.cli.serve.beside import EmbeddedServiceError, _ServiceThread
from tests.progress import until


class FakeService:
    """Serves until `stop`, and remembers its thread."""

    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.url = f"http://{name}"
        self._name = name
        self._log = log
        self._error = error
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def run(self, on_ready: Callable[[Any], None]) -> None:
        where = "the thread of the test" if threading.current_thread() is threading.main_thread() else "its thread"
        self._log.append(f"{self._name} runs in {where}")
        if self._error is not None:
            raise self._error
        on_ready(self)
        try:
            await self._stopped.wait()
            self._log.append(f"{self._name} was stopped")
        except asyncio.CancelledError:
            self._log.append(f"{self._name} was cancelled")
            raise


def builders(log: list[str], error: Exception | None = None) -> list[Any]:
    def registry(address: str, urls: Any) -> FakeService:
        return FakeService("registry", log)

    def console(address: str, urls: Any) -> FakeService:
        log.append(f"console at {address} with {urls}")
        return FakeService("console", log, error)

    return [("registry", registry), ("console", console)]


async def started(log: list[str]) -> None:
    await until(lambda: "console runs in its thread" in log, "the console runs")


def test_services_run_in_a_thread_until_they_are_stopped() -> None:
    async def main() -> None:
        log: list[str] = []
        services = _ServiceThread(builders(log))
        assert not services.stop()
        running = asyncio.create_task(services.run("b:1"))
        await started(log)
        assert services.stop()
        await running
        assert log[:3] == [
            "registry runs in its thread",
            "console at b:1 with {'registry': 'http://registry'}",
            "console runs in its thread",
        ]
        assert sorted(log[3:]) == ["console was stopped", "registry was stopped"]
        services.stop()  # the loop is closed; nothing happens

    asyncio.run(main())


def test_services_are_cancelled_with_the_broker() -> None:
    async def main() -> None:
        log: list[str] = []
        running = asyncio.create_task(_ServiceThread(builders(log)).run("b:1"))
        await started(log)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sorted(log[3:]) == ["console was cancelled", "registry was cancelled"]

    asyncio.run(main())


def test_the_error_of_a_service_ends_the_others_and_is_raised() -> None:
    async def main() -> None:
        log: list[str] = []
        with pytest.raises(ExceptionGroup) as raised:
            await _ServiceThread(builders(log, EmbeddedServiceError("no console today"))).run("b:1")
        assert [str(error) for error in raised.value.exceptions] == ["no console today"]
        assert log[-1] == "registry was cancelled"

    asyncio.run(main())
