"""Shell: handlers of /schemas and /contexts: the schema of an id, and the versions that use an id."""

from __future__ import annotations

from typing import Any

from barnabas.registry.api.calls import Call, Text
from barnabas.registry.errors import schema_not_found
from barnabas.registry.subjects import ANY_CONTEXT, DEFAULT_CONTEXT, context_of, parse_subject, qualify
from barnabas.registry.values import Schema, SchemaType


async def read_by_id(call: Call) -> Any:
    schema = _find(call)
    document = schema.to_json()
    document["guid"] = schema.guid
    style = call.text("format")
    if style:
        document["schema"] = _formatted(call, schema, style)
    if call.flag("fetchMaxId"):
        document["maxId"] = call.state.id_max(_context(call))
    subject = call.text("subject")
    if subject:
        users = call.state.users(_context(call), call.schema_id, deleted=True)
        name = qualify(subject, call.context)
        for user, version in users:
            if user == name:
                document.update(subject=user, version=version)
    return document


async def read_text_by_id(call: Call) -> Any:
    schema = _find(call)
    style = call.text("format")
    return Text(_formatted(call, schema, style) if style else schema.text)


async def subjects_of_id(call: Call) -> Any:
    return call.page(sorted({subject for subject, _ in _users(call)}))


async def versions_of_id(call: Call) -> Any:
    return call.page([{"subject": subject, "version": version} for subject, version in _users(call)])


async def read_by_guid(call: Call) -> Any:
    """A schema by its GUID, which is derived from the content and is the same in every context."""
    for versions in call.state.subjects.values():
        for registered in versions.values():
            if registered.schema.guid == call.arguments["guid"]:
                style = call.text("format")
                document = registered.schema.to_json()
                document["guid"] = registered.schema.guid
                if style:
                    parsed = call.registry.schema_cache.parsed(registered.schema, registered.subject)
                    document["schema"] = parsed.formatted(style)
                return document
    raise schema_not_found(call.arguments["guid"])


async def ids_of_guid(call: Call) -> Any:
    """The ids of the schema with this GUID, by context."""
    found = {
        (context_of(registered.subject), registered.id)
        for versions in call.state.subjects.values()
        for registered in versions.values()
        if registered.schema.guid == call.arguments["guid"]
    }
    if not found:
        raise schema_not_found(call.arguments["guid"])
    return [{"context": context, "id": schema_id} for context, schema_id in sorted(found)]


async def list_schemas(call: Call) -> Any:
    """All versions of all subjects. Query parameters: `subjectPrefix`, `deleted`, `latestOnly`."""
    prefix = call.text("subjectPrefix", ANY_CONTEXT)
    if prefix.startswith(ANY_CONTEXT):
        rest = prefix.removeprefix(ANY_CONTEXT)
        names = [name for name in call.state.subjects if parse_subject(name).name.startswith(rest)]
    else:
        wanted = qualify(prefix, call.context)
        names = [name for name in call.state.subjects if name.startswith(wanted)]
    found = []
    for name in sorted(names):
        versions = call.state.versions(name, deleted=call.flag("deleted"))
        found += versions[-1:] if call.flag("latestOnly") else versions
    return call.page([registered.to_json() for registered in found])


async def list_types(call: Call) -> Any:
    return sorted(kind.value for kind in SchemaType)


async def list_contexts(call: Call) -> Any:
    return call.page(call.state.contexts())


def _context(call: Call) -> str:
    """The context in which an id is looked up: the context of the `subject` parameter, else that of the path."""
    subject = call.text("subject")
    return context_of(qualify(subject, call.context)) if subject else call.context


def _find(call: Call) -> Schema:
    schema = call.state.schema(_context(call), call.schema_id)
    if schema is None and call.text("subject") and _context(call) == DEFAULT_CONTEXT:
        # A subject without a context prefix may exist in another context: the id is looked up in that context.
        name = parse_subject(call.text("subject")).name
        for context in call.state.contexts():
            if f":{context}:{name}" in call.state.subjects:
                schema = schema or call.state.schema(context, call.schema_id)
    if schema is None:
        raise schema_not_found(call.schema_id)
    return schema


def _users(call: Call) -> list[tuple[str, int]]:
    context = _context(call)
    if call.state.schema(context, call.schema_id) is None:
        raise schema_not_found(call.schema_id)
    users = call.state.users(context, call.schema_id, deleted=call.flag("deleted"))
    subject = call.text("subject")
    name = qualify(subject, call.context) if subject and not subject.endswith(":") else ""
    return [user for user in users if not name or user[0] == name]


def _formatted(call: Call, schema: Schema, style: str) -> str:
    return call.registry.schema_cache.parsed(schema, f":{_context(call)}:").formatted(style)
