"""Shell: handlers of /subjects and /compatibility: registering, looking up, listing, deleting and checking schemas.

`app.py` has read the `_schemas` topic to its end before a handler is called.
"""

from __future__ import annotations

from typing import Any

from barnabas.registry.api.calls import Call, Text
from barnabas.registry.deleting import decide_delete_subject, decide_delete_version
from barnabas.registry.errors import schema_not_found, subject_not_found, version_not_found
from barnabas.registry.schemas import check_compatible, decide_register, look_up
from barnabas.registry.subjects import ANY_CONTEXT, parse_subject, qualify
from barnabas.registry.values import LATEST, RegisteredSchema


async def list_subjects(call: Call) -> Any:
    """The subjects, sorted by name. Query parameters: `subjectPrefix`, `deleted`, `deletedOnly`. Without a prefix, the
    subjects of the context in the path, or of all contexts if the path has none.
    """
    prefix = call.text("subjectPrefix", ANY_CONTEXT)
    if prefix.startswith(ANY_CONTEXT):
        rest = prefix.removeprefix(ANY_CONTEXT)
        names = [name for name in call.state.subjects if parse_subject(name).name.startswith(rest)]
    else:
        wanted = qualify(prefix, call.context)
        names = [name for name in call.state.subjects if name.startswith(wanted)]
    if call.context != "." and prefix.startswith(ANY_CONTEXT):
        names = [name for name in names if name.startswith(f":{call.context}:")]
    if call.flag("deletedOnly"):
        names = [name for name in names if not call.state.versions(name)]
    elif not call.flag("deleted"):
        names = [name for name in names if call.state.versions(name)]
    return call.page(sorted(names))


async def register(call: Call) -> Any:
    request = call.registration()
    registered = await call.registry.change(lambda state, schema_cache: decide_register(state, schema_cache, request))
    document = _document(call, registered)
    del document["subject"]
    if not call.text("format"):  # the response has the request's own text, because clients cache it under that text
        document["schema"] = request.schema.text
    return document


async def find_schema(call: Call) -> Any:
    request = call.registration()
    found = look_up(
        call.state,
        call.registry.schema_cache,
        request.subject,
        request.schema,
        normalize=request.normalize,
        deleted=call.flag("deleted"),
    )
    return _document(call, found)


async def list_versions(call: Call) -> Any:
    subject = call.subject
    versions = call.state.versions(subject, deleted=call.flag("deleted") or call.flag("deletedOnly"))
    if call.flag("deletedOnly"):
        versions = [one for one in versions if one.deleted]
    if not versions:
        raise subject_not_found(call.arguments["subject"])
    return call.page([one.version for one in versions])


async def read_version(call: Call) -> Any:
    return _document(call, _find_version(call, deleted=call.flag("deleted")))


async def read_version_text(call: Call) -> Any:
    return Text(_document(call, _find_version(call, deleted=call.flag("deleted")))["schema"])


async def referenced_by(call: Call) -> Any:
    """The ids of the schemas that refer to the version in the path."""
    registered = _find_version(call, deleted=True)
    found = call.state.referring(registered.subject, registered.version, deleted=call.flag("deleted"))
    return call.page(sorted({one.id for one in found}))


async def latest_with_metadata(call: Call) -> Any:
    """The newest version whose metadata has these properties (`key=...&value=...`, repeated)."""
    wanted = dict(zip(call.query.get("key", ()), call.query.get("value", ()), strict=False))
    versions = call.state.versions(call.subject, deleted=call.flag("deleted"))
    if not versions:
        raise subject_not_found(call.arguments["subject"])
    for registered in reversed(versions):
        properties = (registered.schema.metadata or {}).get("properties") or {}
        if wanted.items() <= properties.items():
            return _document(call, registered)
    raise schema_not_found()


async def delete_subject(call: Call) -> Any:
    subject, permanent = call.subject, call.flag("permanent")
    return await call.registry.change(lambda state, _: decide_delete_subject(state, subject, permanent=permanent))


async def delete_version(call: Call) -> Any:
    subject, version, permanent = call.subject, call.version(), call.flag("permanent")
    if version == LATEST:
        version = _find_version(call, deleted=permanent).version
    return await call.registry.change(
        lambda state, _: decide_delete_version(state, subject, version, permanent=permanent)
    )


async def check_version(call: Call) -> Any:
    """Whether a schema is compatible with one version, by the subject's compatibility level."""
    return _checked(call, [_find_version(call, deleted=False)])


async def check_versions(call: Call) -> Any:
    """Whether a schema could be registered, by the subject's compatibility level."""
    return _checked(call, call.state.versions(call.subject))


def _checked(call: Call, against: list[RegisteredSchema]) -> Any:
    request = call.registration()
    problems = check_compatible(
        call.state, call.registry.schema_cache, request.subject, request.schema, against, normalize=request.normalize
    )
    answer: dict[str, Any] = {"is_compatible": not problems}
    if call.flag("verbose"):
        answer["messages"] = problems
    return answer


def _find_version(call: Call, *, deleted: bool) -> RegisteredSchema:
    version, subject = call.version(), call.subject
    versions = call.state.versions(subject, deleted=deleted)
    if not versions and not call.state.versions(subject, deleted=True):
        raise subject_not_found(call.arguments["subject"])
    if version == LATEST and versions:
        return versions[-1]
    found = next((one for one in versions if one.version == version), None)
    if found is None:
        raise version_not_found(call.arguments["version"])
    return found


def _document(call: Call, registered: RegisteredSchema) -> dict[str, Any]:
    """A version as the API returns it; the query parameter `format` selects another representation of the
    schema text.
    """
    document = registered.to_json()
    style = call.text("format")
    if style:
        document["schema"] = call.registry.schema_cache.parsed(registered.schema, registered.subject).formatted(style)
    if registered.deleted and call.flag("deleted"):
        document["deleted"] = True
    return document
