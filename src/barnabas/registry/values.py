"""Value: schemas, references, compatibility levels and modes, as the registry's rooms pass them around."""

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
    """The kinds of schema; AVRO is what a request that names none means."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class Compatibility(StrEnum):
    """What a new version must keep of the older ones.

    BACKWARD: readers with the new schema read data of the last version. FORWARD: readers with the last version read
    data of the new one. FULL: both. TRANSITIVE: not only the last version, but all.
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
    """What a subject accepts. IMPORT takes schemas with their ids and versions from another registry."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that this one uses: the name it is used by (a type, a $ref, an import), and where it is."""

    name: str
    subject: str
    version: int

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it is sent: its text, what kind of text it is, and what it refers to.

    `metadata` and `rule_set` are the data contract's; the registry keeps them and gives them back.
    """

    text: str
    type: SchemaType = SchemaType.AVRO
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = field(default=None, hash=False)
    rule_set: JsonObject | None = field(default=None, hash=False)

    def to_json(self) -> dict[str, Any]:
        """As the REST API writes it: what is at its default is left out."""
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
        """16 bytes that say whether two schemas are the same content, and so share an id."""
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
        """A name for the content that is the same in every registry."""
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
        """As the REST API answers."""
        head: dict[str, Any] = {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "guid": self.schema.guid,
        }
        return {**head, **self.schema.to_json()}


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why data written with one schema cannot be read with the other, and where in the schema it lies."""

    kind: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:\"{self.message}\", path:'{self.path}'}}"


LATEST: Final = -1
"""The version number that means the newest one."""
VERSION_MAX: Final = (1 << 31) - 1
