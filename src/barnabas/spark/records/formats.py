"""Value: the formats of keys and values, where their schemas are, and what happens to records that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from barnabas.registry.access import RegistryLogin


class RecordFormat(Enum):
    """`valueFormat` and `keyFormat`. `avro`, `json-schema` and `protobuf` have a schema; with a schema registry, each
    key or value begins with the id of its schema. `json` is plain JSON text.
    """

    RAW = "raw"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    PROTOBUF = "protobuf"

    @property
    def is_plain(self) -> bool:
        """Whether the format has no schema."""
        return self in (RecordFormat.RAW, RecordFormat.STRING)


class SchemaEvolution(Enum):
    """`schema.evolution`: what a running query does with records that were written with another schema than the one it
    reads with.

    IGNORE reads them as its own schema says: fields that it does not have are left out, and fields that they do not
    have get their defaults. RESTART does so, too, until the subject has a newer version: the query stops, and its next
    start reads with that version. FAIL stops at every record of another schema.
    """

    IGNORE = "ignore"
    RESTART = "restart"
    FAIL = "fail"


class ErrorsTolerance(Enum):
    """`errors.tolerance`: a record that cannot be read stops the query (NONE), or is left out of the result (ALL)."""

    NONE = "none"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How to connect to the schema registry."""

    url: str
    login: RegistryLogin = field(default=RegistryLogin(), repr=False)
    normalize: bool = False
    auto_register: bool = True
    use_latest: bool | None = None
    """Write with the latest version of the subject. None: if the subject exists."""


@dataclass(frozen=True, slots=True)
class PartFormat:
    """The format of the keys or of the values. `schema` is the text of a schema; else `subject` and `version` name a
    schema in the registry. `message` is the name of a Protobuf message.
    """

    is_key: bool
    format: RecordFormat = RecordFormat.RAW
    schema: str | None = None
    subject: str | None = None
    version: int | None = None
    message: str | None = None

    @property
    def part(self) -> str:
        return "key" if self.is_key else "value"

    def subject_of(self, topic: str) -> str:
        return self.subject or f"{topic}-{self.part}"


@dataclass(frozen=True, slots=True)
class DeadLetterOptions:
    """The topic for records that cannot be read."""

    topic: str
    context_headers: bool = True
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class RecordFormats:
    """All options of the formats of a query."""

    key: PartFormat = PartFormat(is_key=True)
    value: PartFormat = PartFormat(is_key=False)
    registry: RegistryAccess | None = None
    evolution: SchemaEvolution = SchemaEvolution.IGNORE
    tolerance: ErrorsTolerance = ErrorsTolerance.NONE
    dead_letters: DeadLetterOptions | None = None

    @property
    def typed(self) -> tuple[PartFormat, ...]:
        """The parts that are not raw."""
        return tuple(part for part in (self.key, self.value) if part.format is not RecordFormat.RAW)
