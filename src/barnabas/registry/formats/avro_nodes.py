"""Value: the types of an Avro schema as a graph. A recursive record is reachable from its own fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""The field has no default. (`None` is the default null.)"""


@dataclass(eq=False, slots=True)
class Primitive:
    """null, boolean, int, long, float, double, bytes or string. `props` has attributes such as logicalType."""

    name: str
    props: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.name


@dataclass(eq=False, slots=True)
class ArrayType:
    items: AvroType
    props: dict[str, Any] = field(default_factory=dict)
    label: str = field(default="array", init=False)


@dataclass(eq=False, slots=True)
class MapType:
    values: AvroType
    props: dict[str, Any] = field(default_factory=dict)
    label: str = field(default="map", init=False)


@dataclass(eq=False, slots=True)
class UnionType:
    branches: list[AvroType]
    label: str = field(default="union", init=False)


@dataclass(eq=False)
class NamedType:
    """The common attributes of records, enums and fixed types. Aliases are full names."""

    namespace: str
    name: str
    aliases: list[str]
    doc: str | None
    props: dict[str, Any]

    @property
    def fullname(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name

    @property
    def label(self) -> str:
        return self.fullname

    @property
    def kind(self) -> str:
        raise NotImplementedError


@dataclass(eq=False)
class RecordType(NamedType):
    kind_name: str = "record"
    fields: list[AvroField] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.kind_name


@dataclass(eq=False)
class EnumType(NamedType):
    symbols: list[str] = field(default_factory=list)
    default: str | None = None

    @property
    def kind(self) -> Literal["enum"]:
        return "enum"


@dataclass(eq=False)
class FixedType(NamedType):
    size: int = 0

    @property
    def kind(self) -> Literal["fixed"]:
        return "fixed"


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record. `default` is a JSON value, or MISSING."""

    name: str
    type: AvroType
    default: Any = MISSING
    aliases: list[str] = field(default_factory=list)
    doc: str | None = None
    order: str = "ascending"
    props: dict[str, Any] = field(default_factory=dict)


AvroType = Primitive | ArrayType | MapType | UnionType | NamedType


def type_name(node: AvroType) -> str:
    """The name of a type's kind, for error messages."""
    match node:
        case Primitive():
            return node.name
        case NamedType():
            return node.kind
        case _:
            return node.label
