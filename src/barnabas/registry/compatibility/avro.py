"""Machine: Avro's schema resolution: whether a reader with one schema can read data written with another.

The rules are those of the specification's "Schema Resolution", as Java's `SchemaCompatibility` interprets them: named
types match by their unqualified name or by an alias of the reader's type, fields by name or by an alias of the reader's
field.
"""

from __future__ import annotations

from typing import Final

from barnabas.registry.compatibility.effort import Effort
from barnabas.registry.formats.avro_nodes import (
    MISSING,
    ArrayType,
    AvroField,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    Primitive,
    RecordType,
    UnionType,
    type_name,
)
from barnabas.registry.values import Incompatibility

PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""Promotions: data written with the key type can be read as one of these types."""


def read_problems(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """All reasons why `reader` cannot read data written with `writer`."""
    return _Resolver().compare(reader, writer, "/")


class _Resolver:
    """One comparison. A pair of records that is already being compared counts as compatible, so that recursion ends."""

    def __init__(self) -> None:
        self._under_way: set[tuple[int, int]] = set()
        self._effort = Effort()

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        self._effort.spend()
        if isinstance(writer, UnionType):
            return self._written_union(reader, writer, path)
        if isinstance(reader, UnionType):
            return self._read_union(reader, writer, path)
        match reader, writer:
            case Primitive(), Primitive():
                if reader.name == writer.name or reader.name in PROMOTIONS.get(writer.name, ()):
                    return []
            case ArrayType(), ArrayType():
                return self.compare(reader.items, writer.items, f"{path}items/")
            case MapType(), MapType():
                return self.compare(reader.values, writer.values, f"{path}values/")
            case EnumType(), EnumType():
                return _name_problems(reader, writer, path) + _symbol_problems(reader, writer, path)
            case FixedType(), FixedType():
                return _name_problems(reader, writer, path) + _size_problems(reader, writer, path)
            case RecordType(), RecordType():
                return self._records(reader, writer, path)
        message = f"the reader expects {type_name(reader)}, but {type_name(writer)} was written"
        return [_problem("TYPE_MISMATCH", path, message)]

    def _written_union(self, reader: AvroType, writer: UnionType, path: str) -> list[Incompatibility]:
        """Each branch must be readable, because any branch may have been written."""
        problems: list[Incompatibility] = []
        for index, branch in enumerate(writer.branches):
            if self.compare(reader, branch, path):
                message = f"the union that was written has the branch {branch.label}, which the reader cannot read"
                problems.append(_problem("MISSING_UNION_BRANCH", f"{path}{index}", message))
        return problems

    def _read_union(self, reader: UnionType, writer: AvroType, path: str) -> list[Incompatibility]:
        """One branch that can read the data is enough."""
        if any(not self.compare(branch, writer, f"{path}{i}/") for i, branch in enumerate(reader.branches)):
            return []
        message = f"no branch of the reader's union can read {writer.label}"
        return [_problem("MISSING_UNION_BRANCH", path, message)]

    def _records(self, reader: RecordType, writer: RecordType, path: str) -> list[Incompatibility]:
        pair = (id(reader), id(writer))
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        problems = _name_problems(reader, writer, path)
        by_name = {one.name: one for one in writer.fields}
        for index, one in enumerate(reader.fields):
            place = f"{path}fields/{index}"
            written = _written_field(one, by_name)
            if written is not None:
                problems += self.compare(one.type, written.type, f"{place}/type/")
            elif one.default is MISSING:
                message = f"the field '{one.name}' has no default and was not written"
                problems.append(_problem("READER_FIELD_MISSING_DEFAULT_VALUE", place, message))
        self._under_way.discard(pair)
        return problems


def _written_field(one: AvroField, by_name: dict[str, AvroField]) -> AvroField | None:
    for name in (one.name, *one.aliases):
        if name in by_name:
            return by_name[name]
    return None


def _name_problems(reader: NamedType, writer: NamedType, path: str) -> list[Incompatibility]:
    if reader.name == writer.name or writer.fullname in reader.aliases:
        return []
    message = f"the {reader.kind} is named {reader.fullname}, but {writer.fullname} was written; an alias would help"
    return [_problem("NAME_MISMATCH", f"{path}name", message)]


def _symbol_problems(reader: EnumType, writer: EnumType, path: str) -> list[Incompatibility]:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not None:
        return []
    message = f"the enum lacks the symbols {', '.join(missing)}, which may have been written, and has no default"
    return [_problem("MISSING_ENUM_SYMBOLS", f"{path}symbols", message)]


def _size_problems(reader: FixedType, writer: FixedType, path: str) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    message = f"{reader.fullname} is {reader.size} bytes, but {writer.size} were written"
    return [_problem("FIXED_SIZE_MISMATCH", f"{path}size", message)]


def _problem(kind: str, path: str, message: str) -> Incompatibility:
    return Incompatibility(kind, path.rstrip("/") or "/", message)
