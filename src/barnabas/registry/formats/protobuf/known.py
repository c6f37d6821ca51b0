"""Table: the .proto files that every schema may import without a reference, because every registry has them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from google.protobuf import descriptor_pb2 as pb

from barnabas.registry.formats.protobuf.parser import parse_proto

_GOOGLE: Final = (
    "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
    "wrappers",
)  # fmt: skip
_TYPES: Final = (
    "calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "latlng", "money", "month",
    "postal_address", "quaternion", "timeofday",
)  # fmt: skip
_DECIMAL: Final = """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
_META: Final = """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_OURS: Final = {"confluent/type/decimal.proto": _DECIMAL, "confluent/meta.proto": _META}


@cache
def known_file(name: str) -> pb.FileDescriptorProto | None:
    """A well-known file by its import name; None for other files. The files of google/type/* need the package
    googleapis-common-protos.
    """
    if name in _OURS:
        file = parse_proto(_OURS[name])
        file.name = name
        return file
    folder, _, base = name.rpartition("/")
    stem = base.removesuffix(".proto")
    if (folder, stem in _GOOGLE) == ("google/protobuf", True) or (folder, stem in _TYPES) == ("google/type", True):
        try:
            module = import_module(f"{folder.replace('/', '.')}.{stem}_pb2")
        except ImportError:
            return None
        file = pb.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        return file
    return None
