"""Shell: runs the connectors of files in one process, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.core.ids import TopicPartition
from barnabas.core.telemetry import get_logger
from barnabas.spark.connectors.connect.cluster.ports import ConnectorJob, ConnectorReport, ConnectorRuntime
from barnabas.spark.connectors.connect.cluster.values import ConnectorState
from barnabas.spark.connectors.connect.connector_files import ConnectorFile, ConnectorFileError
from barnabas.spark.connectors.connect.offsets.store import CheckpointStore

log = get_logger("barnabas.connect")

REPORT_SECONDS: Final = 1.0


class StandaloneWorker:
    """Connectors without a cluster: no REST API, and no topics of Connect's own.

    The checkpoints have the paths that `barnabas connect serve` uses, so that its workers can continue the connectors.
    """

    def __init__(self, storage_location: str, runtime: ConnectorRuntime, connectors: Sequence[ConnectorFile]) -> None:
        self._runtime = runtime
        self._connectors = tuple(connectors)
        self._store = CheckpointStore(storage_location, _earliest)
        self._stopping = asyncio.Event()
        self.states: dict[str, ConnectorState] = {}

    def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()

    async def run(self, on_ready: Callable[[StandaloneWorker], None]) -> None:
        """Check all connectors, start them, and start failed queries again, until `stop` is called.

        Nothing is started if one configuration has an error. Raises ConnectorFileError with all errors.
        """
        try:
            await self._check()
            for connector in self._connectors:
                self.states[connector.name] = connector.initial_state
                if connector.initial_state is ConnectorState.RUNNING:
                    places = await self._store.places(connector.name)
                    await self._runtime.start(ConnectorJob(connector.name, connector.config, places))
            on_ready(self)
            while not self._stopping.is_set():
                for name in self.states:
                    await self._observe(name)
                await self._pause()
        finally:
            await self._runtime.close()

    async def _check(self) -> None:
        problems: list[str] = []
        names = [connector.name for connector in self._connectors]
        problems += [
            f"{name} is the name of two connectors" for name in sorted({n for n in names if names.count(n) > 1})
        ]
        for connector in self._connectors:
            try:
                findings = await self._runtime.validate(connector.config)
            except LookupError as error:
                problems.append(f"{connector.name}: {error.args[0]}")
                continue
            problems += [f"{connector.name}: {error}" for finding in findings for error in finding.errors]
        if problems:
            raise ConnectorFileError("; ".join(problems))

    async def _observe(self, name: str) -> None:
        report = await self._runtime.report(name)
        if report is None:
            return  # paused or stopped
        state = _state_of(report)
        if state is not self.states[name]:
            self.states[name] = state
            reason = next((task.trace for task in report.tasks if task.trace is not None), None)
            log.warning("a connector has another state", connector=name, state=state.value, reason=reason)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                await self._stopping.wait()
        except TimeoutError:
            return


def _state_of(report: ConnectorReport) -> ConnectorState:
    states = {task.state for task in report.tasks}
    for state in (ConnectorState.FAILED, ConnectorState.RESTARTING):
        if state in states:
            return state
    return ConnectorState.RUNNING


async def _earliest(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Only a change of offsets needs log start offsets, and a standalone worker changes none."""
    raise AssertionError(partitions)
