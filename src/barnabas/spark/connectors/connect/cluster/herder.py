"""Machine: the decisions about requests that change connectors. Each returns the records to write and the response.

A decision is made from a `ConnectState` that was read to the end of the config topic, and written in one transaction
(`client/single_writer/state.py`). It raises ConnectRequestError to reject the request. The worker that runs the
connector notices the records and acts on them (`duties.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.core.decision import Decision
from barnabas.spark.connectors.connect.cluster.records import (
    CommitRecord,
    ConnectorRecord,
    ConnectRecord,
    LoggerRecord,
    RestartRecord,
    TargetRecord,
    TaskRecord,
)
from barnabas.spark.connectors.connect.cluster.state import ConnectState, StatusBoard
from barnabas.spark.connectors.connect.cluster.values import (
    LOG_LEVELS,
    ConnectorConfig,
    ConnectorEntry,
    ConnectorState,
    ConnectRequestError,
    RestartRequest,
    TargetState,
)

INITIAL_STATES: Mapping[str, TargetState] = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
"""The values of `initial_state` in a request that creates a connector."""


def named_config(name: str, config: ConnectorConfig) -> dict[str, str]:
    """The configuration with its `name`. Raises ConnectRequestError if it has another name."""
    given = config.get("name", name)
    if given != name:
        message = f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})"
        raise ConnectRequestError(400, message)
    return {**config, "name": name}


def patched(config: ConnectorConfig, patch: Mapping[str, str | None]) -> dict[str, str]:
    """The configuration after a PATCH: null removes a key."""
    merged: dict[str, str | None] = {**config, **patch}
    return {key: text for key, text in merged.items() if text is not None}


def decide_create(
    state: ConnectState, name: str, config: ConnectorConfig, initial: TargetState | None
) -> Decision[ConnectRecord, ConnectorEntry]:
    """Create a connector. 409 if there is one of this name."""
    if name in state.connectors:
        raise ConnectRequestError(409, f"Connector {name} already exists")
    target = [TargetRecord(name, initial)] if initial is not None else []
    entry = ConnectorEntry(name, dict(config), 0, initial or TargetState.STARTED)
    return Decision(entry, [*target, ConnectorRecord(name, dict(config))])


def decide_put(
    state: ConnectState, name: str, config: ConnectorConfig, expected: ConnectorConfig | None
) -> Decision[ConnectRecord, tuple[bool, ConnectorEntry]]:
    """Create a connector or replace its configuration. `expected` is the configuration (None: no connector) that was
    read when the new one was validated; 409 if it has changed since. The response says if the connector is new.
    """
    known = state.connectors.get(name)
    if (None if known is None else known.config) != expected:
        raise ConnectRequestError(409, f"The configuration of {name} was changed by another request; send it again.")
    if known is None:
        created = decide_create(state, name, config, None)
        return Decision((True, created.response), created.records)
    records = [] if known.config == config else [ConnectorRecord(name, dict(config))]
    changed = ConnectorEntry(name, dict(config), known.revision, known.target, known.tasks)
    return Decision((False, changed), records)


def decide_delete(state: ConnectState, name: str) -> Decision[ConnectRecord, None]:
    """Delete a connector. Its offsets stay, as in Connect: a connector of the same name continues from them."""
    entry = state.connector(name)
    tasks: list[ConnectRecord] = [TaskRecord(name, task, None) for task in range(len(entry.tasks))]
    return Decision(None, [ConnectorRecord(name, None), TargetRecord(name, None), *tasks, CommitRecord(name, None)])


def decide_target(state: ConnectState, name: str, target: TargetState) -> Decision[ConnectRecord, None]:
    """Pause, resume or stop a connector."""
    entry = state.connector(name)
    return Decision(None, [] if entry.target is target else [TargetRecord(name, target)])


def decide_restart(state: ConnectState, name: str, request: RestartRequest) -> Decision[ConnectRecord, ConnectorEntry]:
    """Ask the worker that runs the connector to restart it. 404 for a task that the connector does not have."""
    entry = state.connector(name)
    if request.task is not None and request.task >= len(entry.tasks):
        raise ConnectRequestError(404, f"Task {name}-{request.task} not found")
    return Decision(entry, [RestartRecord(name, request)])


def decide_tasks(
    state: ConnectState, name: str, revision: int, tasks: Sequence[ConnectorConfig]
) -> Decision[ConnectRecord, bool]:
    """Publish the tasks that a worker has made from the configuration of this revision. Nothing is written if the
    tasks are known, or if the configuration has changed since; the response says if they are the current ones.
    """
    entry = state.connectors.get(name)
    if entry is None or entry.revision != revision:
        return Decision(False)  # the response
    wanted = tuple(dict(task) for task in tasks)
    if entry.tasks == wanted:
        return Decision(True)  # the response
    records: list[ConnectRecord] = [TaskRecord(name, task, config) for task, config in enumerate(wanted)]
    records += [TaskRecord(name, task, None) for task in range(len(wanted), len(entry.tasks))]
    return Decision(True, [*records, CommitRecord(name, len(wanted))])  # the response


def decide_level(logger: str, level: str) -> Decision[ConnectRecord, None]:
    """Set the level of a logger in all workers."""
    return Decision(None, [LoggerRecord(logger, checked_level(level))])


def checked_level(level: object) -> str:
    """The level in capitals. Raises ConnectRequestError."""
    if level is None:
        raise ConnectRequestError(400, "Desired 'level' parameter was not specified in request.")
    text = str(level).upper()
    if text not in LOG_LEVELS:
        raise ConnectRequestError(404, f"Invalid log level '{level}'. The levels are {', '.join(LOG_LEVELS)}.")
    return text


def to_restart(request: RestartRequest, connector: ConnectorState | None, tasks: Mapping[int, ConnectorState]) -> bool:
    """Whether a request restarts a connector in these states. A connector and its tasks are restarted together,
    because they are one streaming query.
    """
    if request.task is not None:
        return True
    if not request.only_failed:
        return True
    failed = [connector is ConnectorState.FAILED]
    if request.include_tasks:
        failed += [state is ConnectorState.FAILED for state in tasks.values()]
    return any(failed)


def status_document(entry: ConnectorEntry, board: StatusBoard, kind: str) -> dict[str, Any]:
    """The status of a connector as the API returns it. 404 if no worker has reported anything yet."""
    status = board.connector(entry.name)
    if status is None:
        raise ConnectRequestError(404, f"No status found for connector {entry.name}")
    head: dict[str, Any] = {"state": status.state.value, "worker_id": status.worker_id}
    if status.trace:
        head["trace"] = status.trace
    if status.version:
        head["version"] = status.version
    tasks = (
        [] if entry.target is TargetState.STOPPED else [task_document(entry, board, n) for n in board.tasks(entry.name)]
    )
    return {"name": entry.name, "connector": head, "tasks": tasks, "type": kind}


def task_document(entry: ConnectorEntry, board: StatusBoard, task: int) -> dict[str, Any]:
    """The status of a task as the API returns it. 404 if there is none."""
    status = board.tasks(entry.name).get(task)
    if status is None:
        raise ConnectRequestError(404, f"No status found for task {entry.name}-{task}")
    document: dict[str, Any] = {"id": task, "state": status.state.value, "worker_id": status.worker_id}
    if status.trace:
        document["trace"] = status.trace
    if status.version:
        document["version"] = status.version
    return document
