"""Value: schemas, references, compatibility levels and modes, used by all modules of the registry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

JsonObject = Mapping[str, Any]


class SchemaType(StrEnum):
    """The types of schemas. A request without a type means AVRO."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Compatibility(StrEnum):
    """The compatibility that a new version of a subject must have with older versions.

    BACKWARD: the new schema can read data written with the last version. FORWARD: the last version can read data
    written with the new schema. FULL: both. NONE: nothing is checked. With the suffix TRANSITIVE, this holds for all
    older versions, not only for the last one.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def backward(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        return self.value.endswith("TRANSITIVE")


class Mode(StrEnum):
    """Which changes a subject accepts. READONLY accepts no new schemas, deletions and configs. READONLY_OVERRIDE is
    only for the whole registry, and makes all subjects read-only. IMPORT accepts schemas together with the ids and
    versions that they have in another registry.
    """

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to another schema: the name by which the text refers to it (a type, a $ref, an import), its subject
    and version.
    """

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is sent in a request: its text, its type, and its references.

    `metadata` and `rule_set` belong to data contracts; the registry stores and returns them.
    """

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = field(default=None, hash=False)
    rule_set: JsonObject | None = field(default=None, hash=False)

    def to_json(self) -> dict[str, Any]:
        """The JSON of the REST API. Fields with their default value are left out."""
        document: dict[str, Any] = {}
        if self.type is not SchemaType.AVRO:
            document["schemaType"] = self.type.value
        if self.references:
            document["references"] = [reference.to_json() for reference in self.references]
        if self.metadata is not None:
            document["metadata"] = self.metadata
        if self.rule_set is not None:
            document["ruleSet"] = self.rule_set
        document["schema"] = self.text
        return document

    @property
    def fingerprint(self) -> bytes:
        """16 bytes that are equal for schemas with equal content, which share an id."""
        document = [
            self.text,
            self.type.value,
            [(r.name, r.subject, r.version) for r in self.references],
            self.metadata,
            self.rule_set,
        ]
        encoded = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        return hashlib.md5(encoded, usedforsecurity=False).digest()

    @property
    def guid(self) -> str:
        """An identifier of the content that is the same in every registry."""
        return str(UUID(bytes=self.fingerprint))


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject. `subject` is qualified with its context (see `subjects.py`)."""

    subject: str
    version: int
    id: int
    schema: Schema
    deleted: bool = False

    def to_json(self) -> dict[str, Any]:
        """The JSON of the REST API."""
        head: dict[str, Any] = {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "guid": self.schema.guid,
        }
        return {**head, **self.schema.to_json()}


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why data written with one schema cannot be read with the other, and its path in the schema."""

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:\"{self.message}\", path:'{self.path}'}}"


LATEST: Final = -1
"""The version number that means the newest version."""
VERSION_MAX: Final = (1 << 31) - 1
