"""Codec: writes a linked `FileDescriptorProto` as canonical .proto text. Equal descriptors have equal texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb
from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from barnabas.registry.formats.protobuf.linker import Symbols
from barnabas.registry.formats.protobuf.parser import FIELD_NUMBER_MAX, SCALARS

_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    pb.FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    pb.FieldDescriptorProto.LABEL_REQUIRED: "required ",
    pb.FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}
_ENUM_NUMBER_MAX: Final = (1 << 31) - 1
Lines = Iterator[str]


def print_proto(file: pb.FileDescriptorProto, symbols: Symbols, *, sort: bool = False) -> str:
    """The text. With `sort`, members are sorted by number and options by name."""
    return "\n".join(_Printer(file, symbols, sort).file()) + "\n"


class _Printer:
    def __init__(self, file: pb.FileDescriptorProto, symbols: Symbols, sort: bool) -> None:
        self._file = file
        self._symbols = symbols
        self._sort = sort
        self._labels = file.syntax not in ("proto3", "editions")

    def file(self) -> Lines:
        file = self._file
        if file.syntax == "editions":
            yield f'edition = "{pb.Edition.Name(file.edition).removeprefix("EDITION_")}";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        if file.dependency:
            yield ""
        order = range(len(file.dependency))
        for index in sorted(order, key=lambda i: file.dependency[i]) if self._sort else order:
            kind = "public " if index in file.public_dependency else "weak " if index in file.weak_dependency else ""
            yield f"import {kind}{_quote(file.dependency[index])};"
        options = self._options(file.options)
        if options:
            yield ""
        for name, value in options:
            yield f"option {name} = {value};"
        for message in file.message_type:
            yield ""
            yield from self._message(message, _join(file.package, message.name), "")
        for enum in file.enum_type:
            yield ""
            yield from self._enum(enum, "")
        yield from self._extensions_of(file.extension, file.package, "")
        for service in file.service:
            yield ""
            yield from self._service(service)

    # -- messages

    def _message(self, message: pb.DescriptorProto, scope: str, indent: str) -> Lines:
        yield f"{indent}message {message.name} {{"
        yield from self._message_body(message, scope, indent + "  ")
        yield f"{indent}}}"

    def _message_body(self, message: pb.DescriptorProto, scope: str, indent: str) -> Lines:
        for name, value in self._options(message.options):
            yield f"{indent}option {name} = {value};"
        if message.reserved_range:
            yield f"{indent}reserved {_ranges(message.reserved_range, 1, FIELD_NUMBER_MAX)};"
        if message.reserved_name:
            yield f"{indent}reserved {', '.join(map(_quote, message.reserved_name))};"
        for extension_range in message.extension_range:
            yield f"{indent}extensions {_ranges([extension_range], 1, FIELD_NUMBER_MAX)};"
        nested = {one.name: one for one in message.nested_type}
        groups: set[str] = set()
        fields = sorted(message.field, key=lambda one: one.number) if self._sort else list(message.field)
        started: set[int] = set()
        for field in fields:
            if field.HasField("oneof_index") and not field.proto3_optional:
                if field.oneof_index not in started:
                    started.add(field.oneof_index)
                    members = [f for f in fields if f.HasField("oneof_index") and f.oneof_index == field.oneof_index]
                    yield from self._oneof(message.oneof_decl[field.oneof_index], members, scope, indent)
                continue
            if field.type == pb.FieldDescriptorProto.TYPE_GROUP:
                group = field.type_name.rpartition(".")[2]
                groups.add(group)
                yield f"{indent}{_LABELS[field.label]}group {group} = {field.number}{self._field_options(field)} {{"
                yield from self._message_body(nested[group], _join(scope, group), indent + "  ")
                yield f"{indent}}}"
                continue
            yield f"{indent}{self._field(field, scope)}"
        for one in message.nested_type:
            if not one.options.map_entry and one.name not in groups:
                yield ""
                yield from self._message(one, _join(scope, one.name), indent)
        for enum in message.enum_type:
            yield ""
            yield from self._enum(enum, indent)
        yield from self._extensions_of(message.extension, scope, indent)

    def _oneof(
        self, oneof: pb.OneofDescriptorProto, members: list[pb.FieldDescriptorProto], scope: str, indent: str
    ) -> Lines:
        yield f"{indent}oneof {oneof.name} {{"
        for name, value in self._options(oneof.options):
            yield f"{indent}  option {name} = {value};"
        for field in members:
            yield f"{indent}  {self._field(field, scope, label=False)}"
        yield f"{indent}}}"

    def _field(self, field: pb.FieldDescriptorProto, scope: str, *, label: bool = True) -> str:
        entry = self._map_entry(field)
        if entry is not None:
            key, value = sorted(entry.field, key=lambda one: one.number)
            text = f"map<{self._type(key, scope)}, {self._type(value, scope)}>"
        else:
            text = self._type(field, scope)
            repeated = field.label == pb.FieldDescriptorProto.LABEL_REPEATED
            if label and (self._labels or repeated):
                text = _LABELS[field.label] + text
            elif label and field.proto3_optional:
                text = f"optional {text}"
        return f"{text} {field.name} = {field.number}{self._field_options(field)};"

    def _map_entry(self, field: pb.FieldDescriptorProto) -> Any:
        if field.type != pb.FieldDescriptorProto.TYPE_MESSAGE:
            return None
        symbol = self._symbols.get(field.type_name[1:])
        return symbol.descriptor if symbol is not None and symbol.is_map else None

    def _type(self, field: pb.FieldDescriptorProto, scope: str) -> str:
        if field.type in _SCALAR_NAMES:
            return _SCALAR_NAMES[field.type]
        return self._symbols.shorten(field.type_name[1:], scope)

    def _field_options(self, field: pb.FieldDescriptorProto) -> str:
        options = self._options(field.options)
        if field.HasField("json_name") and field.json_name != json_name(field.name):
            options.insert(0, ("json_name", _quote(field.json_name)))
        if field.HasField("default_value"):
            texts = (pb.FieldDescriptorProto.TYPE_STRING, pb.FieldDescriptorProto.TYPE_BYTES)
            options.insert(0, ("default", _quote(field.default_value) if field.type in texts else field.default_value))
        return f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""

    def _extensions_of(self, extensions: Any, scope: str, indent: str) -> Lines:
        for field in extensions:
            extendee = field.extendee[1:]
            shown = self._symbols.shorten(extendee, scope) if extendee in self._symbols else extendee
            yield ""
            yield f"{indent}extend {shown} {{"
            yield f"{indent}  {self._field(field, scope)}"
            yield f"{indent}}}"

    # -- enums and services

    def _enum(self, enum: pb.EnumDescriptorProto, indent: str) -> Lines:
        yield f"{indent}enum {enum.name} {{"
        for name, value in self._options(enum.options):
            yield f"{indent}  option {name} = {value};"
        if enum.reserved_range:
            yield f"{indent}  reserved {_ranges(enum.reserved_range, 0, _ENUM_NUMBER_MAX)};"
        if enum.reserved_name:
            yield f"{indent}  reserved {', '.join(map(_quote, enum.reserved_name))};"
        for one in enum.value:
            options = self._options(one.options)
            shown = f" [{', '.join(f'{name} = {value}' for name, value in options)}]" if options else ""
            yield f"{indent}  {one.name} = {one.number}{shown};"
        yield f"{indent}}}"

    def _service(self, service: pb.ServiceDescriptorProto) -> Lines:
        scope = _join(self._file.package, service.name)
        yield f"service {service.name} {{"
        for name, value in self._options(service.options):
            yield f"  option {name} = {value};"
        for method in service.method:
            takes = ("stream " if method.client_streaming else "") + self._symbols.shorten(method.input_type[1:], scope)
            gives = "stream " if method.server_streaming else ""
            gives += self._symbols.shorten(method.output_type[1:], scope)
            options = self._options(method.options)
            head = f"  rpc {method.name} ({takes}) returns ({gives})"
            if not options:
                yield f"{head};"
                continue
            yield f"{head} {{"
            for name, value in options:
                yield f"    option {name} = {value};"
            yield "  }"
        yield "}"

    # -- options

    def _options(self, options: Any) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for field, value in options.ListFields():
            if field.name == "uninterpreted_option":
                found += [_kept(one) for one in value]
            elif field.name == "map_entry":
                continue
            else:
                name = f"({field.full_name})" if field.is_extension else field.name
                found += [(name, _shown(field, one)) for one in (value if field.is_repeated else [value])]
        return sorted(found) if self._sort else found


def json_name(name: str) -> str:
    """protoc's camel case of a field name, which is its default JSON name."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _shown(field: FieldDescriptor, value: Any) -> str:
    if field.message_type is not None:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if field.enum_type is not None:
        name: str = field.enum_type.values_by_number[value].name
        return name
    if isinstance(value, (str, bytes)):
        return _quote(value if isinstance(value, str) else value.decode("latin-1"))
    return str(value)


def _kept(option: pb.UninterpretedOption) -> tuple[str, str]:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("string_value"):
        return name, _quote(option.string_value.decode("utf-8"))
    if option.HasField("aggregate_value"):
        return name, f"{{ {option.aggregate_value} }}"
    for field in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(field):
            return name, str(getattr(option, field))
    return name, '""'


def _ranges(ranges: Any, exclusive: int, largest: int) -> str:
    shown = []
    for one in ranges:
        last = one.end - exclusive
        shown.append(str(one.start) if one.start == last else f"{one.start} to {'max' if last >= largest else last}")
    return ", ".join(shown)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name
