"""Codec: the records of the `_schemas` topic, in the JSON format of Confluent's registry. Each registry can read the
other's topic.

    key    {"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}
    value  {"subject":"orders-value","version":1,"id":1,"schema":"...","deleted":false}

A null value deletes what the key identifies. The topic is compacted, so only the last record of each key is
significant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.core.errors import BarnabasError
from barnabas.registry.values import Compatibility, JsonObject, Mode, Reference, RegisteredSchema, Schema, SchemaType


class SchemaRecordError(BarnabasError, ValueError):
    """A record of the topic that cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Config:
    """The config of a subject, of a context, or of the whole registry. `rest` holds fields that the registry stores but
    does not interpret.
    """

    compatibility: Compatibility | None = None
    alias: str | None = None
    normalize: bool | None = None
    compatibility_group: str | None = None
    rest: JsonObject = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"alias": self.alias, "normalize": self.normalize}
        document["compatibilityLevel"] = None if self.compatibility is None else self.compatibility.value
        document["compatibilityGroup"] = self.compatibility_group
        document.update(self.rest)
        return {key: value for key, value in document.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A new version of a subject, or a change of its `deleted` flag."""

    registered: RegisteredSchema


@dataclass(frozen=True, slots=True)
class SchemaTombstone:
    """A version of a subject is permanently deleted."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class DeleteSubjectRecord:
    """All versions of a subject up to and including `version` are soft-deleted."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ClearSubjectRecord:
    """A subject is permanently deleted."""

    subject: str


@dataclass(frozen=True, slots=True)
class SubjectConfigRecord:
    """The config of a subject, of a context (`:.ctx:`), or, if `subject` is None, of the whole registry. `config` None
    deletes it.
    """

    subject: str | None
    config: Config | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """The mode of a subject, of a context, or, if `subject` is None, of the whole registry. `mode` None deletes it."""

    subject: str | None
    mode: Mode | None


Record = SchemaRecord | SchemaTombstone | DeleteSubjectRecord | ClearSubjectRecord | SubjectConfigRecord | ModeRecord


def encode_record(record: Record) -> tuple[bytes, bytes | None]:
    """The key and the value of a record."""
    match record:
        case SchemaRecord(registered):
            return _schema_key(registered.subject, registered.version), _dump(_schema_value(registered))
        case SchemaTombstone(subject, version):
            return _schema_key(subject, version), None
        case DeleteSubjectRecord(subject, version):
            return _key("DELETE_SUBJECT", subject), _dump({"subject": subject, "version": version})
        case ClearSubjectRecord(subject):
            return _key("CLEAR_SUBJECT", subject), _dump({"subject": subject})
        case SubjectConfigRecord(subject, config):
            return _key("CONFIG", subject), None if config is None else _dump(
                {"subject": subject, **config.to_json()} if subject else config.to_json()
            )
        case ModeRecord(subject, mode):
            head = {"subject": subject} if subject else {}
            return _key("MODE", subject), None if mode is None else _dump({**head, "mode": mode.value})


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """The record, or None for key types without state (NOOP, and those that newer registries add). Raises
    SchemaRecordError.
    """
    try:
        document = json.loads(key)
        content = None if value is None else json.loads(value)
        kind = document["keytype"]
        subject = document.get("subject")
        match kind:
            case "SCHEMA":
                if content is None:
                    return SchemaTombstone(str(subject), int(document["version"]))
                return SchemaRecord(_registered(content))
            case "DELETE_SUBJECT" if content is not None:
                return DeleteSubjectRecord(content["subject"], int(content["version"]))
            case "CLEAR_SUBJECT" if content is not None:
                return ClearSubjectRecord(content["subject"])
            case "CONFIG":
                return SubjectConfigRecord(subject, None if content is None else config_from_json(content))
            case "MODE":
                return ModeRecord(subject, None if content is None else Mode(content["mode"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SchemaRecordError(f"A record of the schemas topic cannot be decoded: {key[:200]!r}: {error!r}") from error
    return None


def config_from_json(document: Mapping[str, Any]) -> Config:
    """Parse the config in a stored record or in a request. The compatibility level is named `compatibilityLevel` in a
    record, and `compatibility` in a request. Raises ValueError for an unknown level.
    """
    rest = {key: value for key, value in document.items() if key not in _CONFIG_FIELDS and value is not None}
    level = document.get("compatibilityLevel", document.get("compatibility"))
    return Config(
        None if level is None else Compatibility(level),
        document.get("alias"),
        document.get("normalize"),
        document.get("compatibilityGroup"),
        rest,
    )


_CONFIG_FIELDS = {"compatibilityLevel", "compatibility", "alias", "normalize", "compatibilityGroup", "subject"}


def _key(kind: str, subject: str | None) -> bytes:
    return _dump({"keytype": kind, "subject": subject, "magic": 0})


def _schema_key(subject: str, version: int) -> bytes:
    return _dump({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def _schema_value(registered: RegisteredSchema) -> dict[str, Any]:
    head = {"subject": registered.subject, "version": registered.version, "id": registered.id}
    return {**head, **registered.schema.to_json(), "deleted": registered.deleted}


def _registered(document: Mapping[str, Any]) -> RegisteredSchema:
    schema = Schema(
        document["schema"],
        SchemaType(document.get("schemaType") or "AVRO"),
        tuple(Reference(r["name"], r["subject"], int(r["version"])) for r in document.get("references") or ()),
        document.get("metadata"),
        document.get("ruleSet"),
    )
    subject, version, schema_id = document["subject"], int(document["version"]), int(document["id"])
    return RegisteredSchema(subject, version, schema_id, schema, bool(document.get("deleted", False)))


def _dump(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
