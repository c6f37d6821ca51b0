"""Codec: replaces the type names in a file by absolute names: `Bar` inside `foo.Outer` becomes `.foo.Outer.Bar`, as in
protoc.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2 as pb

from barnabas.registry.errors import InvalidSchemaError


@dataclass(frozen=True, slots=True)
class Symbol:
    """A message or an enum: its descriptor, the package of its file, and whether that file is the schema itself."""

    descriptor: Any
    package: str
    own: bool

    @property
    def is_enum(self) -> bool:
        return isinstance(self.descriptor, pb.EnumDescriptorProto)

    @property
    def is_map(self) -> bool:
        return not self.is_enum and bool(self.descriptor.options.map_entry)


class Symbols(dict[str, Symbol]):
    """Symbols by full name, without the leading dot."""

    def resolve(self, name: str, scope: str) -> str | None:
        """The full name to which `name` refers inside `scope`: the innermost match, as in C++; None if there is
        none.
        """
        if name.startswith("."):
            return name[1:] if name[1:] in self else None
        while True:
            candidate = f"{scope}.{name}" if scope else name
            if candidate in self:
                return candidate
            if not scope:
                return None
            scope = scope.rpartition(".")[0]

    def shorten(self, full_name: str, scope: str) -> str:
        """The shortest name that refers to `full_name` inside `scope`."""
        parts = full_name.split(".")
        for count in range(1, len(parts) + 1):
            candidate = ".".join(parts[-count:])
            if self.resolve(candidate, scope) == full_name:
                return candidate
        return f".{full_name}"


def collect_symbols(file: pb.FileDescriptorProto, dependencies: Mapping[str, pb.FileDescriptorProto]) -> Symbols:
    """The symbols of a file and of all its imports. Raises InvalidSchemaError for an import that is not in
    `dependencies`, and for a name that is defined twice.
    """
    symbols = Symbols()
    for other in _imported(file, dependencies):
        symbols.update(_symbols_of(other, own=False))
    for name, symbol in _symbols_of(file, own=True):
        if name in symbols and symbols[name].own:
            raise InvalidSchemaError(f"{name!r} is defined twice in the .proto.")
        symbols[name] = symbol
    return symbols


def link(file: pb.FileDescriptorProto, symbols: Symbols) -> None:
    """Make every type name of `file` absolute, and set each field's type to message or enum accordingly."""
    for message in file.message_type:
        _link_message(message, _join(file.package, message.name), symbols)
    for extension in file.extension:
        _link_field(extension, file.package, symbols)
    for service in file.service:
        scope = _join(file.package, service.name)
        for method in service.method:
            method.input_type = _absolute(method.input_type, scope, symbols)
            method.output_type = _absolute(method.output_type, scope, symbols)


def _link_message(message: pb.DescriptorProto, scope: str, symbols: Symbols) -> None:
    numbers: dict[int, str] = {}
    names: set[str] = set()
    for field in message.field:
        if field.number in numbers:
            raise InvalidSchemaError(
                f"In message {scope}: the fields {numbers[field.number]!r} and {field.name!r} have the number"
                f" {field.number}."
            )
        if field.name in names:
            raise InvalidSchemaError(f"In message {scope}: the field {field.name!r} is defined twice.")
        for reserved in message.reserved_range:
            if reserved.start <= field.number < reserved.end:
                raise InvalidSchemaError(
                    f"In message {scope}: the number {field.number} of {field.name!r} is reserved."
                )
        if field.name in message.reserved_name:
            raise InvalidSchemaError(f"In message {scope}: the name {field.name!r} is reserved.")
        numbers[field.number] = field.name
        names.add(field.name)
        _link_field(field, scope, symbols)
    for extension in message.extension:
        _link_field(extension, scope, symbols)
    for nested in message.nested_type:
        _link_message(nested, _join(scope, nested.name), symbols)


def _link_field(field: pb.FieldDescriptorProto, scope: str, symbols: Symbols) -> None:
    if field.type_name:
        field.type_name = _absolute(field.type_name, scope, symbols)
        if field.type != pb.FieldDescriptorProto.TYPE_GROUP:
            is_enum = symbols[field.type_name[1:]].is_enum
            field.type = pb.FieldDescriptorProto.TYPE_ENUM if is_enum else pb.FieldDescriptorProto.TYPE_MESSAGE
    if field.extendee:
        full_name = symbols.resolve(field.extendee, scope)
        field.extendee = f".{full_name}" if full_name else f".{field.extendee.lstrip('.')}"


def _absolute(name: str, scope: str, symbols: Symbols) -> str:
    full_name = symbols.resolve(name, scope)
    if full_name is None:
        raise InvalidSchemaError(f"In {scope or 'the .proto'}: the type {name!r} is not defined here or in an import.")
    return f".{full_name}"


def _imported(
    file: pb.FileDescriptorProto, dependencies: Mapping[str, pb.FileDescriptorProto]
) -> Iterator[pb.FileDescriptorProto]:
    seen: set[str] = set()
    todo = list(file.dependency)
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        other = dependencies.get(name)
        if other is None:
            raise InvalidSchemaError(f"The import {name!r} is not among the references of the schema.")
        yield other
        todo.extend(other.dependency)


def _symbols_of(file: pb.FileDescriptorProto, *, own: bool) -> Iterator[tuple[str, Symbol]]:
    def walk(messages: Any, enums: Any, scope: str) -> Iterator[tuple[str, Symbol]]:
        for enum in enums:
            yield _join(scope, enum.name), Symbol(enum, file.package, own)
        for message in messages:
            full_name = _join(scope, message.name)
            yield full_name, Symbol(message, file.package, own)
            yield from walk(message.nested_type, message.enum_type, full_name)

    return walk(file.message_type, file.enum_type, file.package)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
