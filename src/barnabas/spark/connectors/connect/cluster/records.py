"""Codec: the records of Connect's config and status topics <-> values. Both topics are compacted; values are JSON
without schemas (JsonConverter with schemas.enable=false).

    config topic   connector-N         {"properties": {...}}                     a connector; null deletes it
                   task-N-I            {"properties": {...}}                     a task
                   commit-N            {"tasks": 2}                              the tasks above are complete
                   target-state-N      {"state": "PAUSED", "state.v2": "STOPPED"}
                   restart-connector-N {"include-tasks": true, "only-failed": false}
                   logger-cluster-L    {"level": "DEBUG"}
    status topic   status-connector-N  {"state", "trace", "worker_id", "generation", "version"}
                   status-task-N-I     the same
                   status-topic-T:connector-N  {"topic": {"name", "connector", "task", "discoverTimestamp"}}

Keys, names and values are those of `KafkaConfigBackingStore` and `KafkaStatusBackingStore` of Apache Kafka. `state.v2`
has the states that workers before Kafka 3.5 do not know: those workers read STOPPED as PAUSED. `task` in a restart
record is ours: it restarts one task. Records that only Connect's own workers use (session keys, fencing of tasks) are
decoded as None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorConfig,
    ConnectorState,
    ConnectStatus,
    RestartRequest,
    TargetState,
    TopicUse,
)


class ConnectorRecord(Struct, frozen=True):
    """The configuration of a connector; None deletes the connector."""

    name: str
    config: ConnectorConfig | None


class TaskRecord(Struct, frozen=True):
    """The configuration of a task, which counts after the next CommitRecord."""

    name: str
    task: int
    config: ConnectorConfig | None


class CommitRecord(Struct, frozen=True):
    """The connector has this number of tasks; None deletes the number."""

    name: str
    tasks: int | None


class TargetRecord(Struct, frozen=True):
    """The state that the user wants; None is the default (STARTED)."""

    name: str
    target: TargetState | None


class RestartRecord(Struct, frozen=True):
    """A request to restart a connector."""

    name: str
    request: RestartRequest


class LoggerRecord(Struct, frozen=True):
    """The level of a logger in all workers."""

    logger: str
    level: str


class ConnectorStatusRecord(Struct, frozen=True):
    """The status of a connector; None deletes it."""

    name: str
    status: ConnectStatus | None


class TaskStatusRecord(Struct, frozen=True):
    """The status of a task; None deletes it."""

    name: str
    task: int
    status: ConnectStatus | None


class TopicUseRecord(Struct, frozen=True):
    """A topic that a connector uses; None deletes the entry."""

    name: str
    topic: str
    use: TopicUse | None


ConnectRecord = ConnectorRecord | TaskRecord | CommitRecord | TargetRecord | RestartRecord | LoggerRecord
StatusRecord = ConnectorStatusRecord | TaskStatusRecord | TopicUseRecord

_TASK_KEY: Final = re.compile(r"(.*)-([0-9]{1,9})", re.DOTALL)
_TOPIC_KEY: Final = re.compile(r"([^:]*):connector-(.*)", re.DOTALL)


class ConfigRecords:
    """The format of the config topic, as `client.single_writer.topic.RecordCodec`. `decode` raises ValueError."""

    def decode(self, key: bytes, value: bytes | None) -> ConnectRecord | None:
        kind, name = _split(key.decode(), _CONFIG_KINDS)
        body = _body(value)
        match kind:
            case "connector":
                return ConnectorRecord(name, None if body is None else _texts(body.get("properties")))
            case "task":
                name, task = _task_of(name)
                return TaskRecord(name, task, None if body is None else _texts(body.get("properties")))
            case "commit":
                return CommitRecord(name, None if body is None else _count(body, "tasks"))
            case "target-state":
                if body is None:
                    return TargetRecord(name, None)
                return TargetRecord(name, TargetState(str(body.get("state.v2") or body.get("state"))))
            case "restart-connector" if body is not None:
                task_number = None if body.get("task") is None else _count(body, "task")
                request = RestartRequest(_flag(body, "include-tasks"), _flag(body, "only-failed"), task_number)
                return RestartRecord(name, request)
            case "logger-cluster" if body is not None:
                return LoggerRecord(name, str(body.get("level")))
            case _:
                return None

    def encode(self, record: ConnectRecord) -> tuple[bytes, bytes | None]:
        match record:
            case ConnectorRecord(name, config):
                return _pair(f"connector-{name}", None if config is None else {"properties": dict(config)})
            case TaskRecord(name, task, config):
                return _pair(f"task-{name}-{task}", None if config is None else {"properties": dict(config)})
            case CommitRecord(name, tasks):
                return _pair(f"commit-{name}", None if tasks is None else {"tasks": tasks})
            case TargetRecord(name, target):
                return _pair(f"target-state-{name}", None if target is None else _target_body(target))
            case RestartRecord(name, request):
                body = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
                task_body = {} if request.task is None else {"task": request.task}
                return _pair(f"restart-connector-{name}", {**body, **task_body})
            case LoggerRecord(logger, level):
                return _pair(f"logger-cluster-{logger}", {"level": level})


def decode_status(key: bytes, value: bytes | None) -> StatusRecord | None:
    """A record of the status topic; None for a record of an unknown kind. Raises ValueError."""
    kind, name = _split(key.decode(), ("status-connector", "status-task", "status-topic"))
    body = _body(value)
    match kind:
        case "status-connector":
            return ConnectorStatusRecord(name, None if body is None else _status(body))
        case "status-task":
            name, task = _task_of(name)
            return TaskStatusRecord(name, task, None if body is None else _status(body))
        case "status-topic":
            match_ = _TOPIC_KEY.fullmatch(name)
            if match_ is None:
                raise ValueError(f"the key {key!r} does not name a topic and a connector")
            return TopicUseRecord(match_[2], match_[1], None if body is None else _topic_use(body))
        case _:
            return None


def encode_status(record: StatusRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record of the status topic."""
    match record:
        case ConnectorStatusRecord(name, status):
            return _pair(f"status-connector-{name}", None if status is None else _status_body(status))
        case TaskStatusRecord(name, task, status):
            return _pair(f"status-task-{name}-{task}", None if status is None else _status_body(status))
        case TopicUseRecord(name, topic, use):
            key = f"status-topic-{topic}:connector-{name}"
            if use is None:
                return _pair(key, None)
            inner = {"name": topic, "connector": name, "task": use.task, "discoverTimestamp": use.discovered_ms}
            return _pair(key, {"topic": inner})


_CONFIG_KINDS: Final = ("connector", "task", "commit", "target-state", "restart-connector", "logger-cluster")


def _split(key: str, kinds: tuple[str, ...]) -> tuple[str, str]:
    for kind in kinds:
        if key.startswith(f"{kind}-"):
            return kind, key[len(kind) + 1 :]
    return "", key


def _task_of(text: str) -> tuple[str, int]:
    found = _TASK_KEY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} does not end in the number of a task")
    return found[1], int(found[2])


def _body(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    document = json.loads(value)
    if not isinstance(document, dict):
        raise ValueError(f"the value is {type(document).__name__}, not an object")  # callers skip it
    return document


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("properties is not an object")  # callers skip the record
    return {str(name): str(text) for name, text in value.items() if text is not None}


def _count(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}, not a number from 0")
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, not true or false")  # callers skip the record
    return value


def _target_body(target: TargetState) -> dict[str, str]:
    old = TargetState.PAUSED if target is TargetState.STOPPED else target
    return {"state": old.value, "state.v2": target.value}


def _status(body: Mapping[str, Any]) -> ConnectStatus:
    return ConnectStatus(
        ConnectorState(str(body.get("state"))),
        str(body.get("worker_id")),
        int(body.get("generation") or 0),
        body.get("trace"),
        body.get("version"),
    )


def _status_body(status: ConnectStatus) -> dict[str, Any]:
    return {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }


def _topic_use(body: Mapping[str, Any]) -> TopicUse:
    inner = body.get("topic")
    if not isinstance(inner, Mapping):
        raise ValueError("topic is not an object")  # callers skip the record
    return TopicUse(
        str(inner.get("name")),
        str(inner.get("connector")),
        int(inner.get("task") or 0),
        int(inner.get("discoverTimestamp") or 0),
    )


def _pair(key: str, body: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    value = None if body is None else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return key.encode(), value
