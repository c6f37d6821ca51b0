"""Machine: registering, looking up and checking schemas. Each `decide_` function reads the state and returns the
records to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from barnabas.core.decision import Decision
from barnabas.registry.compatibility import check
from barnabas.registry.errors import (
    Code,
    IncompatibleError,
    InvalidSchemaError,
    RegistryError,
    schema_not_found,
    subject_not_found,
)
from barnabas.registry.formats import Parsed
from barnabas.registry.records import Record, SchemaRecord, encode_record
from barnabas.registry.schema_cache import SchemaCache
from barnabas.registry.state import RegistryState
from barnabas.registry.subjects import context_of, is_valid, qualify
from barnabas.registry.values import LATEST, Compatibility, Mode, RegisteredSchema, Schema

SCHEMA_BYTES_MAX: Final = 1_000_000
"""The largest schema, in bytes of UTF-8: its text, and the record that stores it with its metadata, rules and
references. The record must fit into a batch of the topic (max.message.bytes)."""
ID_MAX: Final = (1 << 31) - 1
_GROUP_PROPERTIES: Final = "properties"


@dataclass(frozen=True, slots=True)
class SchemaRegistration:
    """A request to register a schema. `id` and `version` are only for mode IMPORT."""

    subject: str
    schema: Schema
    id: int | None = None
    version: int | None = None
    normalize: bool = False


def decide_register(
    state: RegistryState, schema_cache: SchemaCache, request: SchemaRegistration
) -> Decision[Record, RegisteredSchema]:
    """The version that has the schema: an existing version, or a new one if the schema is compatible.

    Raises InvalidSchemaError, IncompatibleError, and RegistryError if the subject's mode or name does not allow it.
    """
    subject = request.subject
    if not is_valid(subject):
        raise RegistryError(Code.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid subject.")
    _require_size(len(request.schema.text.encode()))
    mode = state.mode(subject)
    if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE):
        raise RegistryError(Code.OPERATION_NOT_PERMITTED, f"Subject '{subject}' is in read-only mode")
    if mode is Mode.IMPORT:
        return _decide_import(state, schema_cache, request)
    if request.id is not None and request.id >= 0:
        found = _find_same(state, schema_cache, request)
        if found is not None and found.id == request.id:
            return Decision(found)
        raise RegistryError(Code.OPERATION_NOT_PERMITTED, f"Subject '{subject}' is not in import mode")
    normalize = request.normalize or state.normalizes(subject)
    schema, parsed = _parse_and_canonicalize(state, schema_cache, subject, request.schema, normalize=normalize)
    same = _same_in(schema_cache, state.versions(subject), subject, schema, parsed)
    if same is not None:
        return Decision(same)
    _require_compatible(state, schema_cache, subject, schema, parsed)
    context = context_of(subject)
    known_id = state.id_of(context, schema)
    schema_id = state.next_id(context) if known_id is None else known_id
    return _decide_new(RegisteredSchema(subject, _next_version(state, subject), schema_id, schema))


def _decide_import(
    state: RegistryState, schema_cache: SchemaCache, request: SchemaRegistration
) -> Decision[Record, RegisteredSchema]:
    """Register a schema with the id (and version) that it has in another registry. Compatibility is not checked."""
    subject, context = request.subject, context_of(request.subject)
    if request.id is None or not 0 <= request.id <= ID_MAX:
        raise RegistryError(
            Code.OPERATION_NOT_PERMITTED, f"Subject '{subject}' is in import mode: the schema needs an id"
        )
    schema, parsed = _parse_and_canonicalize(state, schema_cache, subject, request.schema, normalize=request.normalize)
    known = state.schema(context, request.id)
    if known is not None and known.fingerprint != schema.fingerprint:
        raise RegistryError(
            Code.OPERATION_NOT_PERMITTED, f"Overwrite new schema with id {request.id} is not permitted."
        )
    version = request.version if request.version is not None and request.version > 0 else None
    same = _same_in(schema_cache, state.versions(subject), subject, schema, parsed)
    if same is not None and same.id == request.id and version in (None, same.version):
        return Decision(same)
    return _decide_new(RegisteredSchema(subject, version or _next_version(state, subject), request.id, schema))


def _decide_new(new: RegisteredSchema) -> Decision[Record, RegisteredSchema]:
    record = SchemaRecord(new)
    _require_size(len(encode_record(record)[1] or b""))
    return Decision(new, [record])


def _require_size(size: int) -> None:
    if size > SCHEMA_BYTES_MAX:
        raise RegistryError(Code.SCHEMA_TOO_LARGE, f"The schema is larger than {SCHEMA_BYTES_MAX} bytes.")


def look_up(
    state: RegistryState, schema_cache: SchemaCache, subject: str, schema: Schema, *, normalize: bool, deleted: bool
) -> RegisteredSchema:
    """The version of a subject that has the schema. Raises RegistryError with SUBJECT_NOT_FOUND if the subject has no
    versions, and with SCHEMA_NOT_FOUND if none of them has the schema.
    """
    if not state.versions(subject, deleted=deleted):
        raise subject_not_found(subject)
    normalize = normalize or state.normalizes(subject)
    wanted, parsed = _parse_and_canonicalize(state, schema_cache, subject, schema, normalize=normalize)
    found = _same_in(schema_cache, state.versions(subject, deleted=deleted), subject, wanted, parsed)
    if found is None:
        raise schema_not_found()
    return found


def check_compatible(
    state: RegistryState,
    schema_cache: SchemaCache,
    subject: str,
    schema: Schema,
    against: Sequence[RegisteredSchema],
    *,
    normalize: bool = False,
) -> list[str]:
    """The problems that violate the subject's compatibility level against these versions; empty if there are none."""
    wanted, parsed = _parse_and_canonicalize(state, schema_cache, subject, schema, normalize=normalize)
    return _problems(state, schema_cache, subject, wanted, parsed, against)


# -- internal


def _parse_and_canonicalize(
    state: RegistryState, schema_cache: SchemaCache, subject: str, schema: Schema, *, normalize: bool
) -> tuple[Schema, Parsed]:
    """The schema in the form in which it is stored, and its parsed form."""
    parsed = schema_cache.parse_new(schema, subject)
    references = schema.references
    context = context_of(subject)
    if any(reference.version == LATEST for reference in references):
        references = tuple(
            replace(one, version=state.versions(qualify(one.subject, context))[-1].version)
            if one.version == LATEST
            else one
            for one in references
        )
    if normalize:
        references = tuple(sorted(references, key=lambda one: (one.name, one.subject, one.version)))
    text = parsed.normalized if normalize else parsed.canonical
    return replace(schema, text=text, references=references), parsed


def _find_same(state: RegistryState, schema_cache: SchemaCache, request: SchemaRegistration) -> RegisteredSchema | None:
    schema, parsed = _parse_and_canonicalize(
        state, schema_cache, request.subject, request.schema, normalize=request.normalize
    )
    return _same_in(schema_cache, state.versions(request.subject), request.subject, schema, parsed)


def _same_in(
    schema_cache: SchemaCache, versions: Sequence[RegisteredSchema], subject: str, schema: Schema, parsed: Parsed
) -> RegisteredSchema | None:
    """The newest of the subject's `versions` that is the same as `schema`, the schema of a request; None if there is
    none. `parsed` is the parsed form of `schema`. Metadata and rules are compared only if `schema` has them.
    """
    for registered in reversed(versions):
        stored = registered.schema
        if stored.type is not schema.type or stored.references != schema.references:
            continue
        if schema.metadata is not None and schema.metadata != stored.metadata:
            continue
        if schema.rule_set is not None and schema.rule_set != stored.rule_set:
            continue
        if stored.text == schema.text or _canonical(schema_cache, stored, subject) in (parsed.canonical, schema.text):
            return registered
    return None


def _canonical(schema_cache: SchemaCache, stored: Schema, subject: str) -> str:
    """The canonical text of a stored schema. Another registry may have stored a text that is not canonical."""
    try:
        return schema_cache.parsed(stored, subject).canonical
    except InvalidSchemaError:
        return stored.text


def _next_version(state: RegistryState, subject: str) -> int:
    versions = state.versions(subject, deleted=True)
    return versions[-1].version + 1 if versions else 1


def _require_compatible(
    state: RegistryState, schema_cache: SchemaCache, subject: str, schema: Schema, parsed: Parsed
) -> None:
    problems = _problems(state, schema_cache, subject, schema, parsed, state.versions(subject))
    if problems:
        raise IncompatibleError(
            f'Schema being registered is incompatible with an earlier schema for subject "{subject}",'
            f" details: [{', '.join(problems)}]",
            problems,
        )


def _problems(
    state: RegistryState,
    schema_cache: SchemaCache,
    subject: str,
    schema: Schema,
    parsed: Parsed,
    against: Sequence[RegisteredSchema],
) -> list[str]:
    level = state.compatibility(subject)
    if level is Compatibility.NONE:
        return []
    olds = _same_group(state.compatibility_group(subject), schema, against)
    found = check(level, parsed, [schema_cache.parsed(old.schema, subject) for old in olds])
    if not found:
        return []
    index = found[0][0]
    messages = [str(problem) for place, problem in found if place == index]
    return [
        *messages,
        f"{{oldSchemaVersion: {olds[index].version}}}",
        f"{{oldSchema: '{olds[index].schema.text}'}}",
        f"{{compatibility: '{level.value}'}}",
    ]


def _same_group(group: str | None, schema: Schema, versions: Sequence[RegisteredSchema]) -> Sequence[RegisteredSchema]:
    """The versions with which a schema must be compatible. `group` is the subject's compatibility group, the name of a
    metadata property: only the versions that have the same value of this property as the schema are compared. Without a
    group, all are.
    """
    if group is None:
        return versions
    wanted = _property(schema, group)
    return [one for one in versions if _property(one.schema, group) == wanted]


def _property(schema: Schema, name: str) -> object:
    properties = (schema.metadata or {}).get(_GROUP_PROPERTIES)
    return properties.get(name) if isinstance(properties, dict) else None
