"""Value: connectors, tasks and their states, with the names of Kafka Connect, and the error of a rejected request."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from barnabas.core.errors import BarnabasError

ConnectorConfig = Mapping[str, str]
"""The configuration of a connector: texts by name, as the user wrote them. Secrets are references, such as
`${file:/run/secrets/db.properties:password}`, which only the worker that runs the connector resolves.
"""


class ConnectRequestError(BarnabasError):
    """A rejected request. `status` is the HTTP status and Connect's `error_code`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class TargetState(StrEnum):
    """The state that the user wants a connector to have."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class ConnectorState(StrEnum):
    """The state of a connector or a task (Connect's `AbstractStatus.State`)."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    DESTROYED = "DESTROYED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


class ConnectStatus(Struct, frozen=True):
    """What a worker reports about a connector or a task. `generation` is that of the group when it was written."""

    state: ConnectorState
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


class TopicUse(Struct, frozen=True):
    """A topic that a connector has read or written, and the task that was the first to do so."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


class RestartRequest(Struct, frozen=True):
    """A request to restart a connector. `task` restarts only one task."""

    include_tasks: bool = False
    only_failed: bool = False
    task: int | None = None


class ConnectorEntry(Struct, frozen=True):
    """A connector as the config topic has it.

    `revision` changes with each new configuration, `restarts` with each request to restart.
    """

    name: str
    config: ConnectorConfig
    revision: int
    target: TargetState = TargetState.STARTED
    tasks: tuple[ConnectorConfig, ...] = ()
    restarts: int = 0
    restart: RestartRequest = field(default_factory=RestartRequest)


class ConnectorKind(StrEnum):
    """Whether a connector reads from another system or writes to it."""

    SOURCE = "source"
    SINK = "sink"
    UNKNOWN = "unknown"


LOG_LEVELS: Final[Mapping[str, str]] = {
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARN": "WARNING",
    "ERROR": "ERROR",
    "FATAL": "CRITICAL",
    "OFF": "CRITICAL",
}
"""The levels that Connect's API has, and the levels of Python's `logging` that stand for them."""
