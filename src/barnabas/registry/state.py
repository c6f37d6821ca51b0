"""Machine: the state of the registry. Only `apply` changes it; applying all records of the topic rebuilds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeVar

from barnabas.registry.records import (
    ClearSubjectRecord,
    Config,
    DeleteSubjectRecord,
    ModeRecord,
    Record,
    SchemaRecord,
    SchemaTombstone,
    SubjectConfigRecord,
)
from barnabas.registry.subjects import DEFAULT_CONTEXT, Subject, context_of, parse_subject
from barnabas.registry.values import Compatibility, Mode, RegisteredSchema, Schema

T = TypeVar("T")
DEFAULT_LEVEL: Final = Compatibility.BACKWARD
Place = tuple[str, int]
"""A subject and a version."""


class RegistryState:
    """Subjects with their versions, schemas by id, configs and modes. Applying a record twice has no further effect."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, RegisteredSchema]] = {}
        """Versions by number, including soft-deleted ones, by qualified subject."""
        self.configs: dict[str | None, Config] = {}
        self.modes: dict[str | None, Mode] = {}
        self._schemas: dict[tuple[str, int], Schema] = {}
        self._ids: dict[tuple[str, bytes], int] = {}
        self._users: dict[tuple[str, int], set[Place]] = {}
        self._referring: dict[Place, set[Place]] = {}
        self._id_max: dict[str, int] = {}

    # -- changing

    def apply(self, record: Record) -> None:
        """Apply one record to the state."""
        match record:
            case SchemaRecord(registered):
                self._put(registered)
            case SchemaTombstone(subject, version):
                self._remove(subject, version)
            case DeleteSubjectRecord(subject, version):
                versions = self.subjects.get(subject, {})
                for number in [number for number in versions if number <= version]:
                    versions[number] = replace(versions[number], deleted=True)
            case ClearSubjectRecord(subject):
                for number in list(self.subjects.get(subject, {})):
                    self._remove(subject, number)
            case SubjectConfigRecord(place, config):
                _set(self.configs, place, config)
            case ModeRecord(place, mode):
                _set(self.modes, place, mode)

    def _put(self, registered: RegisteredSchema) -> None:
        subject, version, schema_id = registered.subject, registered.version, registered.id
        known = self.subjects.get(subject, {}).get(version)
        if known is not None and known.id != schema_id:
            self._remove(subject, version)
        context = context_of(subject)
        self.subjects.setdefault(subject, {})[version] = registered
        self._schemas[context, schema_id] = registered.schema
        self._ids[context, registered.schema.fingerprint] = schema_id
        self._users.setdefault((context, schema_id), set()).add((subject, version))
        self._id_max[context] = max(self._id_max.get(context, 0), schema_id)
        for reference in registered.schema.references:
            self._referring.setdefault((reference.subject, reference.version), set()).add((subject, version))

    def _remove(self, subject: str, version: int) -> None:
        registered = self.subjects.get(subject, {}).pop(version, None)
        if registered is None:
            return
        if not self.subjects[subject]:
            del self.subjects[subject]
        key = (context_of(subject), registered.id)
        users = self._users[key]
        users.discard((subject, version))
        if not users:
            del self._users[key]
            del self._schemas[key]
            self._ids.pop((key[0], registered.schema.fingerprint), None)
        for reference in registered.schema.references:
            self._referring.get((reference.subject, reference.version), set()).discard((subject, version))

    # -- reading

    def versions(self, subject: str, *, deleted: bool = False) -> list[RegisteredSchema]:
        """The versions of a subject in ascending order; includes soft-deleted ones only with `deleted`."""
        versions = self.subjects.get(subject, {})
        return [versions[number] for number in sorted(versions) if deleted or not versions[number].deleted]

    def find(self, subject: str, version: int) -> RegisteredSchema | None:
        """One version of a subject, even if it is soft-deleted."""
        return self.subjects.get(subject, {}).get(version)

    def schema(self, context: str, schema_id: int) -> Schema | None:
        return self._schemas.get((context, schema_id))

    def id_of(self, context: str, schema: Schema) -> int | None:
        """The id of a schema with the same content in a context; None if there is none."""
        return self._ids.get((context, schema.fingerprint))

    def next_id(self, context: str) -> int:
        return self._id_max.get(context, 0) + 1

    def id_max(self, context: str) -> int:
        return self._id_max.get(context, 0)

    def users(self, context: str, schema_id: int, *, deleted: bool = False) -> list[Place]:
        """The subjects and versions that use an id; includes soft-deleted versions only with `deleted`."""
        places = sorted(self._users.get((context, schema_id), ()))
        return [place for place in places if deleted or not self.subjects[place[0]][place[1]].deleted]

    def referring(self, subject: str, version: int, *, deleted: bool = False) -> list[RegisteredSchema]:
        """The versions that refer to the given version; includes soft-deleted versions only with `deleted`."""
        places = sorted(self._referring.get((subject, version), ()))
        found = [self.subjects[name][number] for name, number in places]
        return [one for one in found if deleted or not one.deleted]

    def contexts(self) -> list[str]:
        return sorted({DEFAULT_CONTEXT, *(context_of(subject) for subject in self.subjects)})

    # -- settings that apply to a subject

    def compatibility(self, subject: str) -> Compatibility:
        """The compatibility level of the subject, else of its context, else of the whole registry, else BACKWARD."""
        for config in self._configs_for(subject):
            if config.compatibility is not None:
                return config.compatibility
        return DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        return next((bool(c.normalize) for c in self._configs_for(subject) if c.normalize is not None), False)

    def compatibility_group(self, subject: str) -> str | None:
        return next((c.compatibility_group for c in self._configs_for(subject) if c.compatibility_group), None)

    def mode(self, subject: str) -> Mode:
        """The mode of the subject, else of its context, else of the whole registry, else READWRITE. READONLY_OVERRIDE
        of the whole registry overrides the modes of subjects and contexts.
        """
        everywhere = self.modes.get(None, Mode.READWRITE)
        if everywhere is Mode.READONLY_OVERRIDE:
            return everywhere
        return next((self.modes[place] for place in _places(subject) if place in self.modes), Mode.READWRITE)

    def alias_of(self, subject: str) -> str:
        """The subject for which an alias stands; the subject itself if it is not an alias."""
        config = self.configs.get(subject)
        if config is None or not config.alias:
            return subject
        alias = parse_subject(config.alias)
        return str(Subject(context_of(subject), alias.name) if alias.context == DEFAULT_CONTEXT else alias)

    def _configs_for(self, subject: str) -> Iterator[Config]:
        return (self.configs[place] for place in _places(subject) if place in self.configs)


def _places(subject: str) -> list[str | None]:
    """The keys under which a setting of a subject is looked up, most specific first."""
    context = context_of(subject)
    return [subject, None] if context == DEFAULT_CONTEXT else [subject, f":{context}:", None]


def _set(settings: dict[str | None, T], place: str | None, value: T | None) -> None:
    if value is None:
        settings.pop(place, None)
    else:
        settings[place] = value
