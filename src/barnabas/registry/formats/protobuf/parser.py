"""Codec: parses the text of a .proto file into a `FileDescriptorProto`, as protoc does before it resolves names.

Type names stay as they are written until `linker.py` resolves them. Options that protobuf does not define stay
uninterpreted. ADR 7 says why no library is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf import descriptor_pb2 as pb

from barnabas.registry.formats.protobuf.lexer import Token, tokens_of
from barnabas.registry.formats.protobuf.options import apply_option
from barnabas.registry.formats.protobuf.reader import TokenReader

SCALARS: Final = {
    name: getattr(pb.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
        "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
LABELS: Final = {
    "optional": pb.FieldDescriptorProto.LABEL_OPTIONAL,
    "required": pb.FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": pb.FieldDescriptorProto.LABEL_REPEATED,
}
FIELD_NUMBER_MAX: Final = (1 << 29) - 1
_ENUM_NUMBER_MAX: Final = (1 << 31) - 1
_DEPTH_MAX: Final = 100


def parse_proto(source: str) -> pb.FileDescriptorProto:
    """Parse one file. Raises InvalidSchemaError with the line and the reason."""
    return _ProtoParser(tokens_of(source)).file()


class _ProtoParser(TokenReader):
    """A recursive-descent parser with one method for each construct of the language."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._depth = 0
        self._proto3 = False

    # -- the file

    def file(self) -> pb.FileDescriptorProto:
        file = pb.FileDescriptorProto()
        if self._take("syntax"):
            self._expect("=")
            syntax = self._text()
            if syntax not in ("proto2", "proto3"):
                self._fail(f"the syntax {syntax!r} is not known")
            self._proto3 = syntax == "proto3"
            if self._proto3:
                file.syntax = syntax
            self._expect(";")
        elif self._take("edition"):
            self._expect("=")
            file.syntax = "editions"
            file.edition = self._edition(self._text())
            self._expect(";")
        while self._tokens[self._at].kind != "end":
            self._statement(file)
        return file

    def _edition(self, text: str) -> Any:
        try:
            return pb.Edition.Value(f"EDITION_{text}")
        except ValueError:
            return self._fail(f"the edition {text!r} is not known")

    def _statement(self, file: pb.FileDescriptorProto) -> None:
        if self._take(";"):
            return
        if self._take("package"):
            file.package = self._full_name()
            self._expect(";")
        elif self._take("import"):
            public, weak = self._take("public"), self._take("weak")
            if public:
                file.public_dependency.append(len(file.dependency))
            if weak:
                file.weak_dependency.append(len(file.dependency))
            file.dependency.append(self._text())
            self._expect(";")
        elif self._take("option"):
            self._option(file.options)
            self._expect(";")
        elif self._take("message"):
            self._message(file.message_type.add())
        elif self._take("enum"):
            self._enum(file.enum_type.add())
        elif self._take("extend"):
            self._extend(file.extension, file.message_type.add)
        elif self._take("service"):
            self._service(file.service.add())
        else:
            self._fail(f"{self._peek()!r} is not allowed here")

    # -- messages

    def _message(self, message: pb.DescriptorProto) -> None:
        message.name = self._name()
        self._message_body(message)

    def _message_body(self, message: pb.DescriptorProto) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail(f"messages are nested more than {_DEPTH_MAX} deep")
        self._expect("{")
        while not self._take("}"):
            self._member(message)
        _declare_optionals(message)
        self._depth -= 1

    def _member(self, message: pb.DescriptorProto) -> None:
        if self._take(";"):
            return
        following = self._tokens[self._at + 1].text if self._at + 1 < len(self._tokens) else ""
        match self._peek():
            case "message" if following != ".":
                self._next()
                self._message(message.nested_type.add())
            case "enum" if following != ".":
                self._next()
                self._enum(message.enum_type.add())
            case "option":
                self._next()
                self._option(message.options)
                self._expect(";")
            case "oneof":
                self._next()
                self._oneof(message)
            case "extend":
                self._next()
                self._extend(message.extension, message.nested_type.add)
            case "extensions":
                self._next()
                self._extensions(message)
            case "reserved":
                self._next()
                self._reserved(message)
            case "map" if following == "<":
                self._map(message)
            case _:
                self._field(message.field.add(), message.nested_type.add)

    def _field(
        self, field: pb.FieldDescriptorProto, nested: Callable[[], pb.DescriptorProto], *, label: bool = True
    ) -> None:
        field.label = pb.FieldDescriptorProto.LABEL_OPTIONAL
        if label and self._peek() in LABELS:
            word = self._name()
            field.label = LABELS[word]
            if word == "optional" and self._proto3:
                field.proto3_optional = True
            if word == "required" and self._proto3:
                self._fail("proto3 has no required fields")
        if self._take("group"):
            self._group(field, nested())
            return
        self._type(field)
        field.name = self._name()
        self._number(field)
        self._field_options(field)
        self._expect(";")

    def _type(self, field: pb.FieldDescriptorProto) -> None:
        name = self._full_name()
        if name in SCALARS:
            field.type = SCALARS[name]
        else:
            field.type_name = name

    def _number(self, field: pb.FieldDescriptorProto) -> None:
        self._expect("=")
        field.number = number = self._bounded(FIELD_NUMBER_MAX)
        if number < 1 or 19_000 <= number <= 19_999:
            self._fail(f"{number} is not a valid number for field {field.name!r}")

    def _bounded(self, limit: int) -> int:
        number = self._integer()
        if not -limit - 1 <= number <= limit:
            self._fail(f"the number {number} is too large")
        return number

    def _group(self, field: pb.FieldDescriptorProto, message: pb.DescriptorProto) -> None:
        message.name = self._name()
        field.name = message.name.lower()
        field.type = pb.FieldDescriptorProto.TYPE_GROUP
        field.type_name = message.name
        self._number(field)
        self._field_options(field)
        self._message_body(message)

    def _map(self, message: pb.DescriptorProto) -> None:
        self._next()
        self._expect("<")
        entry = message.nested_type.add()
        key = entry.field.add(name="key", number=1, label=LABELS["optional"])
        self._type(key)
        self._expect(",")
        value = entry.field.add(name="value", number=2, label=LABELS["optional"])
        self._type(value)
        self._expect(">")
        field = message.field.add(name=self._name(), label=LABELS["repeated"])
        entry.name = map_entry_name(field.name)
        entry.options.map_entry = True
        field.type = pb.FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = entry.name
        self._number(field)
        self._field_options(field)
        self._expect(";")

    def _oneof(self, message: pb.DescriptorProto) -> None:
        index = len(message.oneof_decl)
        oneof = message.oneof_decl.add(name=self._name())
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._take("option"):
                self._option(oneof.options)
                self._expect(";")
                continue
            field = message.field.add()
            self._field(field, message.nested_type.add, label=False)
            field.oneof_index = index

    def _field_options(self, field: pb.FieldDescriptorProto) -> None:
        if not self._take("["):
            return
        while True:
            name = self._option_name()
            self._expect("=")
            if name == [("default", False)]:
                field.default_value = self._default()
            elif name == [("json_name", False)]:
                field.json_name = self._text()
            else:
                apply_option(field.options, name, self._constant())
            if self._take("]"):
                return
            self._expect(",")

    def _default(self) -> str:
        token = self._tokens[self._at]
        if token.kind == "text":
            return self._text()
        sign = "-" if self._take("-") else ""
        return sign + self._next().text

    def _extend(self, extensions: Any, nested: Callable[[], pb.DescriptorProto]) -> None:
        extendee = self._full_name()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            field = extensions.add()
            self._field(field, nested)
            field.extendee = extendee

    def _extensions(self, message: pb.DescriptorProto) -> None:
        added = [message.extension_range.add(start=first, end=last + 1) for first, last in self._ranges()]
        if self._take("["):
            while True:
                name = self._option_name()
                self._expect("=")
                constant = self._constant()
                for one in added:
                    apply_option(one.options, name, constant)
                if self._take("]"):
                    break
                self._expect(",")
        self._expect(";")

    def _reserved(self, message: pb.DescriptorProto) -> None:
        if self._tokens[self._at].kind in ("text", "name"):
            message.reserved_name.extend(self._reserved_names())
        else:
            for first, last in self._ranges():
                message.reserved_range.add(start=first, end=last + 1)
        self._expect(";")

    def _reserved_names(self) -> list[str]:
        names: list[str] = []
        while True:
            names.append(self._text() if self._tokens[self._at].kind == "text" else self._name())
            if not self._take(","):
                return names

    def _ranges(self, last_of_all: int = FIELD_NUMBER_MAX) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        while True:
            first = last = self._bounded(last_of_all)
            if self._take("to"):
                last = last_of_all if self._take("max") else self._bounded(last_of_all)
            ranges.append((first, last))
            if not self._take(","):
                return ranges

    # -- enums and services

    def _enum(self, enum: pb.EnumDescriptorProto) -> None:
        enum.name = self._name()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._peek() == "option" and self._tokens[self._at + 1].text != "=":
                self._next()
                self._option(enum.options)
                self._expect(";")
            elif self._peek() == "reserved" and self._tokens[self._at + 1].text != "=":
                self._next()
                if self._tokens[self._at].kind in ("text", "name"):
                    enum.reserved_name.extend(self._reserved_names())
                else:
                    for first, last in self._ranges(_ENUM_NUMBER_MAX):
                        enum.reserved_range.add(start=first, end=last)
                self._expect(";")
            else:
                value = enum.value.add(name=self._name())
                self._expect("=")
                value.number = self._bounded(_ENUM_NUMBER_MAX)
                if self._take("["):
                    while True:
                        name = self._option_name()
                        self._expect("=")
                        apply_option(value.options, name, self._constant())
                        if self._take("]"):
                            break
                        self._expect(",")
                self._expect(";")

    def _service(self, service: pb.ServiceDescriptorProto) -> None:
        service.name = self._name()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            if self._take("option"):
                self._option(service.options)
                self._expect(";")
                continue
            self._expect("rpc")
            method = service.method.add(name=self._name())
            method.client_streaming, method.input_type = self._rpc_type()
            self._expect("returns")
            method.server_streaming, method.output_type = self._rpc_type()
            if self._take("{"):
                while not self._take("}"):
                    if self._take(";"):
                        continue
                    self._expect("option")
                    self._option(method.options)
                    self._expect(";")
            else:
                self._expect(";")

    def _rpc_type(self) -> tuple[bool, str]:
        self._expect("(")
        streaming = self._peek() == "stream" and self._tokens[self._at + 1].text not in (")", ".")
        if streaming:
            self._next()
        name = self._full_name()
        self._expect(")")
        return streaming, name

    # -- options

    def _option(self, options: Any) -> None:
        name = self._option_name()
        self._expect("=")
        apply_option(options, name, self._constant())


def map_entry_name(field_name: str) -> str:
    """protoc's name for the message type of a map field: `my_map` -> `MyMapEntry`."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"


def _declare_optionals(message: pb.DescriptorProto) -> None:
    """Add the synthetic oneof of each proto3 `optional` field, named after the field. They come after all written
    oneofs.
    """
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
