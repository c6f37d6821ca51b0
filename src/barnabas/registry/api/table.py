"""Table: all routes of the API: method and path -> handler. `{x}` matches one path segment, percent-decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from barnabas.registry.api import schemas, settings, subjects
from barnabas.registry.api.calls import Call

Handler = Callable[[Call], Awaitable[Any]]


async def _nothing(call: Call) -> Any:
    return {}


async def _about(call: Call) -> Any:
    from barnabas import __version__

    return {"version": __version__, "commitId": ""}


async def _identity(call: Call) -> Any:
    return {"scope": {"path": [], "clusters": {}}}


ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("GET", "/", _nothing),
    ("POST", "/", _nothing),
    ("GET", "/v1/metadata/id", _identity),
    ("GET", "/v1/metadata/version", _about),
    ("GET", "/contexts", schemas.list_contexts),
    ("GET", "/schemas", schemas.list_schemas),
    ("GET", "/schemas/types", schemas.list_types),
    ("GET", "/schemas/ids/{id}", schemas.read_by_id),
    ("GET", "/schemas/ids/{id}/schema", schemas.read_text_by_id),
    ("GET", "/schemas/ids/{id}/subjects", schemas.subjects_of_id),
    ("GET", "/schemas/ids/{id}/versions", schemas.versions_of_id),
    ("GET", "/schemas/guids/{guid}", schemas.read_by_guid),
    ("GET", "/schemas/guids/{guid}/ids", schemas.ids_of_guid),
    ("GET", "/subjects", subjects.list_subjects),
    ("POST", "/subjects/{subject}", subjects.find_schema),
    ("DELETE", "/subjects/{subject}", subjects.delete_subject),
    ("GET", "/subjects/{subject}/metadata", subjects.latest_with_metadata),
    ("GET", "/subjects/{subject}/versions", subjects.list_versions),
    ("POST", "/subjects/{subject}/versions", subjects.register),
    ("GET", "/subjects/{subject}/versions/{version}", subjects.read_version),
    ("DELETE", "/subjects/{subject}/versions/{version}", subjects.delete_version),
    ("GET", "/subjects/{subject}/versions/{version}/schema", subjects.read_version_text),
    ("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects.referenced_by),
    ("POST", "/compatibility/subjects/{subject}/versions", subjects.check_versions),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects.check_version),
    ("GET", "/config", settings.read_config),
    ("PUT", "/config", settings.change_config),
    ("DELETE", "/config", settings.delete_config),
    ("GET", "/config/{subject}", settings.read_config),
    ("PUT", "/config/{subject}", settings.change_config),
    ("DELETE", "/config/{subject}", settings.delete_config),
    ("GET", "/mode", settings.read_mode),
    ("PUT", "/mode", settings.change_mode),
    ("DELETE", "/mode", settings.delete_mode),
    ("GET", "/mode/{subject}", settings.read_mode),
    ("PUT", "/mode/{subject}", settings.change_mode),
    ("DELETE", "/mode/{subject}", settings.delete_mode),
)

LASTING: Final[frozenset[Handler]] = frozenset(
    {_nothing, _about, _identity, schemas.read_by_id, schemas.read_text_by_id, schemas.read_by_guid, schemas.list_types}
)
"""Handlers whose successful response never changes. The registry reads the topic for them only if they do not find what
is requested, or if the query asks for a member of `CHANGING`.
"""
CHANGING: Final = ("fetchMaxId", "subject")
"""Query parameters that add to a lasting response what changes: the largest id, and the version of a subject."""
