"""Table: all routes of Connect's REST API: method and path -> handler. `{x}` matches one path segment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from barnabas.spark.connectors.connect.rest import connectors, offsets, plugins
from barnabas.spark.connectors.connect.rest.calls import ConnectCall

ConnectHandler = Callable[[ConnectCall], Awaitable[Any]]

CONNECT_ROUTES: Final[tuple[tuple[str, str, ConnectHandler], ...]] = (
    ("GET", "/", plugins.about),
    ("GET", "/health", plugins.health),
    ("GET", "/connectors", connectors.list_connectors),
    ("POST", "/connectors", connectors.create),
    ("GET", "/connectors/{connector}", connectors.read),
    ("DELETE", "/connectors/{connector}", connectors.delete),
    ("GET", "/connectors/{connector}/config", connectors.read_config),
    ("PUT", "/connectors/{connector}/config", connectors.put_config),
    ("PATCH", "/connectors/{connector}/config", connectors.patch_config),
    ("GET", "/connectors/{connector}/status", connectors.read_status),
    ("POST", "/connectors/{connector}/restart", connectors.restart),
    ("PUT", "/connectors/{connector}/pause", connectors.pause),
    ("PUT", "/connectors/{connector}/resume", connectors.resume),
    ("PUT", "/connectors/{connector}/stop", connectors.stop),
    ("GET", "/connectors/{connector}/tasks", connectors.list_tasks),
    ("GET", "/connectors/{connector}/tasks/{task}/status", connectors.read_task_status),
    ("POST", "/connectors/{connector}/tasks/{task}/restart", connectors.restart_task),
    ("GET", "/connectors/{connector}/topics", connectors.list_topics),
    ("PUT", "/connectors/{connector}/topics/reset", connectors.reset_topics),
    ("GET", "/connectors/{connector}/offsets", offsets.read_offsets),
    ("PATCH", "/connectors/{connector}/offsets", offsets.alter_offsets),
    ("DELETE", "/connectors/{connector}/offsets", offsets.reset_offsets),
    ("GET", "/connector-plugins", plugins.list_plugins),
    ("GET", "/connector-plugins/{plugin}/config", plugins.read_definitions),
    ("PUT", "/connector-plugins/{plugin}/config/validate", plugins.validate),
    ("GET", "/admin/loggers", plugins.list_loggers),
    ("GET", "/admin/loggers/{logger}", plugins.read_logger),
    ("PUT", "/admin/loggers/{logger}", plugins.set_logger),
)
