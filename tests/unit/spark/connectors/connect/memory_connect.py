"""A Connect cluster in memory: the topics, workers that share them, and a runtime that only notes what it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.client.single_writer.state import WriterFencedError
from barnabas.spark.connectors.connect.cluster.ports import (
    ConfigDefinition,
    ConfigFinding,
    ConnectorJob,
    ConnectorPlaces,
    ConnectorReport,
    ConnectPlugin,
    StartedConnector,
    TaskReport,
)
from barnabas.spark.connectors.connect.cluster.records import (
    ConfigRecords,
    ConnectRecord,
    StatusRecord,
    decode_status,
    encode_status,
)
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind, ConnectorState

Pair = tuple[bytes, bytes | None]


class MemoryTopics:
    """The records of the config topic and of the status topic, as bytes."""

    def __init__(self) -> None:
        self.config: list[Pair] = []
        self.status: list[Pair] = []
        self.writer: MemoryConfigLog | None = None


class MemoryConfigLog:
    """A `SharedLog` of one worker."""

    def __init__(self, topics: MemoryTopics) -> None:
        self._topics = topics
        self._position = 0

    async def catch_up(self, apply: Callable[[ConnectRecord], None]) -> None:
        while self._position < len(self._topics.config):
            record = ConfigRecords().decode(*self._topics.config[self._position])
            self._position += 1
            if record is not None:
                apply(record)

    async def become_writer(self) -> bool:
        if self._topics.writer is self:
            return False
        self._topics.writer = self
        return True

    async def append(self, records: Sequence[ConnectRecord], apply: Callable[[ConnectRecord], None]) -> None:
        if self._topics.writer is not self:
            raise WriterFencedError
        self._topics.config += [ConfigRecords().encode(record) for record in records]
        await self.catch_up(apply)


class MemoryStatusLog:
    """A `StatusLog` of one worker."""

    def __init__(self, topics: MemoryTopics) -> None:
        self._topics = topics
        self._position = 0

    async def catch_up(self, apply: Callable[[StatusRecord], None]) -> None:
        while self._position < len(self._topics.status):
            record = decode_status(*self._topics.status[self._position])
            self._position += 1
            if record is not None:
                apply(record)

    async def append(self, records: Sequence[StatusRecord]) -> None:
        self._topics.status += [encode_status(record) for record in records]


class MemoryRuntime:
    """Runs connectors of the class `Memory`. A `path` of "bad" cannot be started."""

    def __init__(self) -> None:
        self.running: dict[str, ConnectorJob] = {}
        self.events: list[str] = []
        self.failed: dict[tuple[str, int], str] = {}

    def plugins(self) -> Sequence[ConnectPlugin]:
        return [
            ConnectPlugin("Memory", "sink", "1.0"),
            ConnectPlugin("JsonConverter", "converter", "1.0"),
        ]

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        return ConnectorKind.SINK if config.get("connector.class") == "Memory" else ConnectorKind.UNKNOWN

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        if plugin != "Memory":
            raise LookupError(f"There is no plugin {plugin}.")
        return [ConfigDefinition("path", required=True, importance="HIGH", group="Place")]

    async def validate(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        definitions = self.definitions(config["connector.class"])
        path = config.get("path")
        errors = () if path else ("path is missing; it must be given.",)
        return [ConfigFinding("path", definitions[0], path, errors)]

    async def start(self, job: ConnectorJob) -> StartedConnector:
        self.events.append(f"start {job.name}")
        if job.config.get("path") == "bad":
            raise OSError("the path bad does not exist")
        assert job.name not in self.running, f"{job.name} runs already"
        self.running[job.name] = job
        count = int(job.config.get("tasks.max", "1"))
        return StartedConnector(tuple({**job.config, "task": str(task)} for task in range(count)), "1.0")

    async def stop(self, name: str) -> None:
        self.events.append(f"stop {name}")
        self.running.pop(name, None)

    async def report(self, name: str) -> ConnectorReport | None:
        job = self.running.get(name)
        if job is None:
            return None
        tasks = []
        for task in range(int(job.config.get("tasks.max", "1"))):
            trace = self.failed.get((name, task))
            tasks.append(TaskReport(ConnectorState.FAILED if trace else ConnectorState.RUNNING, trace))
        return ConnectorReport(tuple(tasks), tuple(filter(None, job.config.get("topics", "").split(","))))

    async def close(self) -> None:
        self.running.clear()


class MemoryOffsets:
    """An `OffsetStore` that keeps what it is given."""

    def __init__(self) -> None:
        self.offsets: dict[str, list[dict[str, Any]]] = {}

    async def places(self, name: str) -> ConnectorPlaces:
        return ConnectorPlaces(f"/memory/{name}", f"/memory/{name}-staging")

    async def read(self, name: str, config: ConnectorConfig) -> list[dict[str, Any]]:
        return self.offsets.get(name, [])

    async def alter(
        self, name: str, config: ConnectorConfig, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        self.offsets[name] = [{"partition": dict(p), "offset": dict(o)} for p, o in offsets if o is not None]

    async def reset(self, name: str) -> None:
        self.offsets.pop(name, None)
