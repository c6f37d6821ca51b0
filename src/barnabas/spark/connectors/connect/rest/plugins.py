"""Shell: handlers of /connector-plugins, and of the worker itself: /, /health, /admin/loggers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.spark.connectors.connect.cluster.herder import checked_level, decide_level
from barnabas.spark.connectors.connect.cluster.ports import ConfigDefinition, ConfigFinding
from barnabas.spark.connectors.connect.cluster.values import ConnectRequestError
from barnabas.spark.connectors.connect.rest.calls import Answer, ConnectCall, config_texts
from barnabas.spark.connectors.connect.rest.connectors import findings_of
from barnabas.spark.connectors.connect.secrets import HIDDEN, REFERENCE, names_secret

_CONNECTOR_KINDS: Final = ("source", "sink")


async def about(call: ConnectCall) -> Any:
    from barnabas import __version__

    return {"version": __version__, "commit": "", "kafka_cluster_id": call.services.cluster_id}


async def health(call: ConnectCall) -> Any:
    """`app.py` answers 503 while the worker starts, and 500 if the topics cannot be read."""
    return {
        "status": "healthy",
        "message": "Worker has completed startup and is ready to handle requests.",
    }


async def list_plugins(call: ConnectCall) -> Any:
    """The connectors; with `connectorsOnly=false` also converters, transforms and predicates."""
    connectors_only = call.flag("connectorsOnly", default=True)
    return [
        {"class": plugin.class_name, "type": plugin.kind, "version": plugin.version}
        for plugin in call.services.runtime.plugins()
        if not connectors_only or plugin.kind in _CONNECTOR_KINDS
    ]


async def read_definitions(call: ConnectCall) -> Any:
    try:
        found = call.services.runtime.definitions(call.arguments["plugin"])
    except LookupError as error:
        raise ConnectRequestError(404, str(error.args[0])) from None
    return [definition_document(definition) for definition in found]


async def validate(call: ConnectCall) -> Any:
    """Check a configuration. The response has status 200 also if there are errors."""
    plugin = call.arguments["plugin"]
    config = config_texts(call.body(), "The body")
    given = config.setdefault("connector.class", plugin)
    if plugin.rpartition(".")[2].lower() != given.rpartition(".")[2].lower():
        raise ConnectRequestError(400, f"Included connector type {given} does not match request type {plugin}")
    findings = await findings_of(call, config)
    groups = dict.fromkeys(finding.definition.group for finding in findings if finding.definition is not None)
    return {
        "name": given,
        "error_count": sum(len(finding.errors) for finding in findings),
        "groups": [group for group in groups if group],
        "configs": [finding_document(finding) for finding in findings],
    }


def definition_document(definition: ConfigDefinition) -> dict[str, Any]:
    """A definition as Connect's `ConfigKeyInfo`."""
    return {
        "name": definition.name,
        "type": definition.type,
        "required": definition.required,
        "default_value": definition.default_value,
        "importance": definition.importance,
        "documentation": definition.documentation,
        "group": definition.group or None,
        "width": definition.width,
        "display_name": definition.display_name or definition.name,
        "dependents": list(definition.dependents),
        "order": definition.order_in_group,
        "order_in_group": definition.order_in_group,
    }


def finding_document(finding: ConfigFinding) -> dict[str, Any]:
    definition = finding.definition
    return {
        "definition": None if definition is None else definition_document(definition),
        "value": {
            "name": finding.name,
            "value": _shown_value(finding),
            "recommended_values": list(finding.recommended_values),
            "errors": list(finding.errors),
            "visible": True,
        },
    }


def _shown_value(finding: ConfigFinding) -> str | None:
    """The value of a key, which Connect hides if it is a password. A reference has no secret in it."""
    definition, value = finding.definition, finding.value
    is_secret = names_secret(finding.name) if definition is None else definition.type == "PASSWORD"
    return HIDDEN if is_secret and value and REFERENCE.fullmatch(value) is None else value


async def list_loggers(call: ConnectCall) -> Any:
    return call.services.loggers.all()


async def read_logger(call: ConnectCall) -> Any:
    return call.services.loggers.one(call.arguments["logger"])


async def set_logger(call: ConnectCall) -> Any:
    """Set a level in this worker, or with `scope=cluster` in all workers."""
    logger, body = call.arguments["logger"], call.body()
    level = checked_level(body.get("level"))
    scope = _last(call.query, "scope", "worker").lower()
    if scope == "cluster":
        await call.services.store.change(lambda _: decide_level(logger, level))
        return Answer(204)
    if scope != "worker":
        raise ConnectRequestError(400, f"scope must be worker or cluster, got {scope!r}")
    return call.services.loggers.set(logger, level)


def _last(query: Mapping[str, Any], name: str, default: str) -> str:
    values = query.get(name)
    return str(values[-1]) if values else default
