"""Machine: what the topics of a Connect cluster say: connectors, tasks, levels of loggers; statuses and used topics.

Only `apply` changes a state; applying all records of a topic rebuilds it. Applying a record twice has no further
effect, except that a restart request counts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from barnabas.spark.connectors.connect.cluster.records import (
    CommitRecord,
    ConnectorRecord,
    ConnectorStatusRecord,
    ConnectRecord,
    LoggerRecord,
    RestartRecord,
    StatusRecord,
    TargetRecord,
    TaskRecord,
    TaskStatusRecord,
    TopicUseRecord,
)
from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorConfig,
    ConnectorEntry,
    ConnectorState,
    ConnectRequestError,
    ConnectStatus,
    TargetState,
    TopicUse,
)

K = TypeVar("K")


class ConnectState:
    """The config topic: connectors by name, and the levels of loggers that all workers have."""

    def __init__(self) -> None:
        self.connectors: dict[str, ConnectorEntry] = {}
        self.log_levels: dict[str, str] = {}
        self.version = 0
        """Counts the records that were applied."""
        self._targets: dict[str, TargetState] = {}
        self._tasks: dict[str, dict[int, ConnectorConfig]] = {}

    def apply(self, record: ConnectRecord) -> None:
        """Apply one record."""
        self.version += 1
        match record:
            case ConnectorRecord(name, None):
                self.connectors.pop(name, None)
                self._targets.pop(name, None)
                self._tasks.pop(name, None)
            case ConnectorRecord(name, config) if config is not None:
                self._put(name, config)
            case TargetRecord(name, target):
                self._target(name, target or TargetState.STARTED)
            case TaskRecord(name, task, config):
                self._task(name, task, config)
            case CommitRecord(name, tasks):
                self._commit(name, tasks or 0)
            case RestartRecord(name, request):
                entry = self.connectors.get(name)
                if entry is not None:
                    self.connectors[name] = replace(entry, restarts=entry.restarts + 1, restart=request)
            case LoggerRecord(logger, level):
                self.log_levels[logger] = level

    def _put(self, name: str, config: ConnectorConfig) -> None:
        known = self.connectors.get(name)
        if known is None:
            target = self._targets.get(name, TargetState.STARTED)
            self.connectors[name] = ConnectorEntry(name, dict(config), self.version, target)
        elif known.config != config:
            self.connectors[name] = replace(known, config=dict(config), revision=self.version)

    def _target(self, name: str, target: TargetState) -> None:
        self._targets[name] = target  # the record may precede that of the connector
        entry = self.connectors.get(name)
        if entry is not None:
            self.connectors[name] = replace(entry, target=target)

    def _task(self, name: str, task: int, config: ConnectorConfig | None) -> None:
        tasks = self._tasks.setdefault(name, {})
        if config is None:
            tasks.pop(task, None)
        else:
            tasks[task] = config

    def _commit(self, name: str, count: int) -> None:
        """The tasks that the topic has not are left out: compaction may have removed a part of an older set."""
        entry = self.connectors.get(name)
        if entry is not None:
            known = self._tasks.get(name, {})
            tasks = tuple(known[task] for task in range(min(count, len(known))) if task in known)
            self.connectors[name] = replace(entry, tasks=tasks)

    def connector(self, name: str) -> ConnectorEntry:
        """The connector of this name. Raises ConnectRequestError (404)."""
        entry = self.connectors.get(name)
        if entry is None:
            raise ConnectRequestError(404, f"Connector {name} not found")
        return entry


class StatusBoard:
    """The status topic: what workers have reported last about connectors and tasks, and which topics are in use.

    The last record in the topic counts, whatever its generation is: the generations begin at 1 again when the group
    was empty. What a worker that was replaced must not write is decided before it writes (`may_write`), as in Connect's
    KafkaStatusBackingStore.
    """

    def __init__(self) -> None:
        self._connectors: dict[str, ConnectStatus] = {}
        self._tasks: dict[str, dict[int, ConnectStatus]] = {}
        self._topics: dict[str, dict[str, TopicUse]] = {}

    def apply(self, record: StatusRecord) -> None:
        """Apply one record."""
        match record:
            case ConnectorStatusRecord(name, status):
                _report(self._connectors, name, status)
            case TaskStatusRecord(name, task, status):
                tasks = self._tasks.setdefault(name, {})
                _report(tasks, task, status)
                if not tasks:
                    del self._tasks[name]
            case TopicUseRecord(name, topic, None):
                self._topics.get(name, {}).pop(topic, None)
            case TopicUseRecord(name, topic, use) if use is not None:
                self._topics.setdefault(name, {})[topic] = use

    def may_write(self, record: StatusRecord) -> bool:
        """Whether a worker that may have been replaced may write this record.

        It may if the board has no status for the connector or task, or if the known status is the worker's own. If the
        known status is another worker's, the record needs the same or a newer generation, and must not be UNASSIGNED:
        the other worker has the connector now.
        """
        match record:
            case ConnectorStatusRecord(name, status) if status is not None:
                known = self._connectors.get(name)
            case TaskStatusRecord(name, task, status) if status is not None:
                known = self._tasks.get(name, {}).get(task)
            case _:
                return True
        if known is None or known.worker_id == status.worker_id:
            return True
        return status.state is not ConnectorState.UNASSIGNED and known.generation <= status.generation

    def connector(self, name: str) -> ConnectStatus | None:
        return self._connectors.get(name)

    def tasks(self, name: str) -> Mapping[int, ConnectStatus]:
        """The statuses of a connector's tasks, in the order of their numbers."""
        return dict(sorted(self._tasks.get(name, {}).items()))

    def topics(self, name: str) -> Mapping[str, TopicUse]:
        """The topics that a connector uses, in the order of their names."""
        return dict(sorted(self._topics.get(name, {}).items()))


def _report(known: dict[K, ConnectStatus], key: K, status: ConnectStatus | None) -> None:
    if status is None:
        known.pop(key, None)
    else:
        known[key] = status
