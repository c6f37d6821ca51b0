"""Shell: handlers of /connectors: creating, reading, changing, pausing, restarting and deleting connectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from barnabas.spark.connectors.connect.cluster import herder
from barnabas.spark.connectors.connect.cluster.ports import ConfigFinding
from barnabas.spark.connectors.connect.cluster.records import TopicUseRecord
from barnabas.spark.connectors.connect.cluster.values import (
    ConnectorConfig,
    ConnectorEntry,
    ConnectorState,
    ConnectRequestError,
    RestartRequest,
    TargetState,
)
from barnabas.spark.connectors.connect.rest.calls import Answer, ConnectCall, config_texts, nullable_texts


async def list_connectors(call: ConnectCall) -> Any:
    """The names; with `expand=status` or `expand=info` (or both), an object by name. A connector without a status is
    left out, as in Connect.
    """
    names = sorted(call.state.connectors)
    expand = call.query.get("expand", ())
    if not expand:
        return names
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        entry = call.state.connectors[name]
        document: dict[str, Any] = {}
        if "status" in expand:
            if call.board.connector(name) is None:
                continue
            document["status"] = herder.status_document(entry, call.board, _kind(call, entry.config))
        if "info" in expand:
            document["info"] = info_document(call, entry)
        found[name] = document
    return found


async def create(call: ConnectCall) -> Any:
    body = call.body()
    config = config_texts(body.get("config"), "'config'")
    name = body.get("name") or config.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConnectRequestError(400, "'name' must be the name of the connector.")
    config = herder.named_config(name, config)
    initial = _initial_state(body.get("initial_state"))
    if name in call.state.connectors:
        raise ConnectRequestError(409, f"Connector {name} already exists")
    await require_valid(call, config)
    entry = await call.services.store.change(lambda state: herder.decide_create(state, name, config, initial))
    return Answer(201, info_document(call, entry), location=f"/connectors/{quote(name, safe='')}")


async def read(call: ConnectCall) -> Any:
    return info_document(call, call.state.connector(call.name))


async def read_config(call: ConnectCall) -> Any:
    return dict(call.state.connector(call.name).config)


async def put_config(call: ConnectCall) -> Any:
    """Create the connector, or replace its configuration."""
    name = call.name
    known = call.state.connectors.get(name)
    return await _put(call, config_texts(call.body(), "The body"), None if known is None else known.config)


async def patch_config(call: ConnectCall) -> Any:
    """Change some keys of the configuration; null removes a key."""
    known = call.state.connector(call.name).config
    return await _put(call, herder.patched(known, nullable_texts(call.body(), "The body")), known)


async def _put(call: ConnectCall, config: ConnectorConfig, known: ConnectorConfig | None) -> Any:
    name = call.name
    named = herder.named_config(name, config)
    await require_valid(call, named)
    is_new, entry = await call.services.store.change(lambda state: herder.decide_put(state, name, named, known))
    location = f"/connectors/{quote(name, safe='')}" if is_new else None
    return Answer(201 if is_new else 200, info_document(call, entry), location=location)


async def delete(call: ConnectCall) -> Any:
    name = call.name
    await call.services.store.change(lambda state: herder.decide_delete(state, name))
    return Answer(204)


async def read_status(call: ConnectCall) -> Any:
    entry = call.state.connector(call.name)
    return herder.status_document(entry, call.board, _kind(call, entry.config))


async def list_tasks(call: ConnectCall) -> Any:
    entry = call.state.connector(call.name)
    return [
        {"id": {"connector": entry.name, "task": task}, "config": dict(config)}
        for task, config in enumerate(entry.tasks)
    ]


async def read_task_status(call: ConnectCall) -> Any:
    return herder.task_document(call.state.connector(call.name), call.board, call.task)


async def restart_task(call: ConnectCall) -> Any:
    name, request = call.name, RestartRequest(include_tasks=True, task=call.task)
    await call.services.store.change(lambda state: herder.decide_restart(state, name, request))
    return Answer(204)


async def restart(call: ConnectCall) -> Any:
    """204 for a restart of the connector; 202 and the expected status with `includeTasks` or `onlyFailed`."""
    name = call.name
    request = RestartRequest(call.flag("includeTasks"), call.flag("onlyFailed"))
    entry = await call.services.store.change(lambda state: herder.decide_restart(state, name, request))
    if not request.include_tasks and not request.only_failed:
        return Answer(204)
    document = herder.status_document(entry, call.board, _kind(call, entry.config))
    status, tasks = call.board.connector(name), call.board.tasks(name)
    states = {task: one.state for task, one in tasks.items()}
    if herder.to_restart(request, None if status is None else status.state, states):
        document["connector"]["state"] = ConnectorState.RESTARTING.value
        for task in document["tasks"]:
            task["state"] = ConnectorState.RESTARTING.value
    return Answer(202, document)


async def pause(call: ConnectCall) -> Any:
    await _set_target(call, TargetState.PAUSED)
    return Answer(202)


async def resume(call: ConnectCall) -> Any:
    await _set_target(call, TargetState.STARTED)
    return Answer(202)


async def stop(call: ConnectCall) -> Any:
    await _set_target(call, TargetState.STOPPED)
    return Answer(204)


async def _set_target(call: ConnectCall, target: TargetState) -> None:
    name = call.name
    await call.services.store.change(lambda state: herder.decide_target(state, name, target))


async def list_topics(call: ConnectCall) -> Any:
    if not call.services.topic_tracking:
        raise ConnectRequestError(403, "Topic tracking is disabled (topic.tracking.enable=false).")
    name = call.state.connector(call.name).name
    return {name: {"topics": list(call.board.topics(name))}}


async def reset_topics(call: ConnectCall) -> Any:
    if not call.services.topic_tracking:
        raise ConnectRequestError(403, "Topic tracking is disabled (topic.tracking.enable=false).")
    if not call.services.topic_tracking_reset:
        raise ConnectRequestError(403, "Topic tracking reset is disabled (topic.tracking.allow.reset=false).")
    name = call.state.connector(call.name).name
    await call.services.store.report([TopicUseRecord(name, topic, None) for topic in call.board.topics(name)])
    return Answer(202)


# -- documents and checks


def info_document(call: ConnectCall, entry: ConnectorEntry) -> dict[str, Any]:
    """A connector as Connect's `ConnectorInfo`."""
    tasks = [{"connector": entry.name, "task": task} for task in range(len(entry.tasks))]
    return {"name": entry.name, "config": dict(entry.config), "tasks": tasks, "type": _kind(call, entry.config)}


def _kind(call: ConnectCall, config: ConnectorConfig) -> str:
    return call.services.runtime.kind(config).value


def _initial_state(value: Any) -> TargetState | None:
    if value is None:
        return None
    found = herder.INITIAL_STATES.get(str(value).upper())
    if found is None:
        raise ConnectRequestError(
            400, f"initial_state must be one of {', '.join(herder.INITIAL_STATES)}, got {value!r}"
        )
    return found


async def require_valid(call: ConnectCall, config: Mapping[str, str]) -> None:
    """Reject a configuration that has errors (400), with all of them."""
    if not config.get("connector.class"):
        raise ConnectRequestError(
            400, 'Connector config must contain a connector type, for example "connector.class": "JdbcSink".'
        )
    findings = await findings_of(call, config)
    errors = [error for finding in findings for error in finding.errors]
    if errors:
        listed = "\n".join(errors)
        raise ConnectRequestError(
            400,
            f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n{listed}\nYou can"
            " also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`",
        )


async def findings_of(call: ConnectCall, config: Mapping[str, str]) -> list[ConfigFinding]:
    """What the runtime says about a configuration. 400 for an unknown connector."""
    try:
        return list(await call.services.runtime.validate(config))
    except LookupError as error:
        raise ConnectRequestError(400, str(error.args[0])) from None
