"""Codec: Protobuf schemas, as the text of a .proto file or as a serialized descriptor in base64.

Both are converted to a `FileDescriptorProto`, from which the canonical text is written.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from google.protobuf import descriptor_pb2 as pb
from google.protobuf.message import DecodeError

from barnabas.registry.compatibility.protobuf import read_problems
from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.protobuf.known import known_file
from barnabas.registry.formats.protobuf.linker import Symbols, collect_symbols, link
from barnabas.registry.formats.protobuf.parser import parse_proto
from barnabas.registry.formats.protobuf.printer import print_proto
from barnabas.registry.values import Incompatibility

ROOT_FILE = "default"
"""The name of the schema's own file in its serialized form."""


def parse_protobuf(text: str, references: Mapping[str, str] | None = None) -> ProtobufSchema:
    """Parse a schema. `references` are texts by import name, each after its own imports. Raises InvalidSchemaError."""
    dependencies: dict[str, pb.FileDescriptorProto] = {}
    for name, other in (references or {}).items():
        file = _read(other)
        file.name = name
        _add_known(file, dependencies)
        link(file, collect_symbols(file, dependencies))
        dependencies[name] = file
    file = _read(text)
    file.name = ROOT_FILE
    _add_known(file, dependencies)
    symbols = collect_symbols(file, dependencies)
    link(file, symbols)
    return ProtobufSchema(file, dependencies, symbols)


@dataclass
class ProtobufSchema:
    """A parsed and linked schema with the files that it imports."""

    file: pb.FileDescriptorProto
    dependencies: dict[str, pb.FileDescriptorProto]
    symbols: Symbols = field(repr=False)

    @property
    def name(self) -> str | None:
        """The full name of the first message."""
        for message in self.file.message_type:
            return f"{self.file.package}.{message.name}" if self.file.package else message.name
        return None

    @cached_property
    def canonical(self) -> str:
        return print_proto(self.file, self.symbols)

    @cached_property
    def normalized(self) -> str:
        return print_proto(self.file, self.symbols, sort=True)

    @cached_property
    def serialized(self) -> str:
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()

    def formatted(self, name: str) -> str:
        return self.serialized if name == "serialized" else self.canonical

    def read_problems(self, writer: Any) -> list[Incompatibility]:
        return read_problems(self.file, self.symbols, writer.file, writer.symbols)


def _read(text: str) -> pb.FileDescriptorProto:
    """Parse .proto text, or a descriptor in base64. A .proto file is never valid base64, because it has spaces."""
    stripped = text.strip()
    if stripped and not any(letter in stripped for letter in " ;{"):
        try:
            file = pb.FileDescriptorProto.FromString(base64.b64decode(stripped, validate=True))
        except (binascii.Error, DecodeError) as error:
            raise InvalidSchemaError(f"The Protobuf schema is neither .proto text nor a descriptor: {error}") from error
        file.ClearField("source_code_info")
        return file
    return parse_proto(text)


def _add_known(file: pb.FileDescriptorProto, dependencies: dict[str, pb.FileDescriptorProto]) -> None:
    todo = list(file.dependency)
    while todo:
        name = todo.pop()
        if name not in dependencies:
            known = known_file(name)
            if known is not None:
                dependencies[name] = known
                todo.extend(known.dependency)
