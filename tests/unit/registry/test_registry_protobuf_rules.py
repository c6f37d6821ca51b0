"""Protobuf: parsing .proto files, canonical text, and the rules of compatibility."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, type_pb2
from google.protobuf.descriptor_pool import DescriptorPool

from barnabas.registry.errors import InvalidSchemaError
from barnabas.registry.formats.protobuf import parse_protobuf
from barnabas.registry.serde.protobuf import text_of

EVERYTHING = """
// what the language has
syntax = "proto2"; package a.b;
import public "google/protobuf/timestamp.proto";
option java_package = "x\\ty"; option (my.option).part = { a: 1 b: "c" };
message Outer {
  option deprecated = true;
  required int32 id = 1 [default = -7, deprecated = true];
  repeated Inner inners = 2;
  optional group Result = 3 { optional string url = 1; }
  map<string, .a.b.Outer.Inner> by_name = 4;
  oneof choice { string s = 5; bytes b = 6 [default = "\\001"]; }
  optional google.protobuf.Timestamp at = 7;
  extensions 100 to 199, 1000 to max;
  reserved 8, 10 to 12; reserved "old", "older";
  message Inner { optional Color color = 1 [default = GREEN]; }
  enum Color { option allow_alias = true; RED = 0; GREEN = 1; LIME = 1; reserved -5 to -1; }
  extend Outer { optional double weight = 150; }
}
/* and services */
service Search {
  rpc Find (stream Outer) returns (stream Outer.Inner) { option deprecated = true; }
  rpc Ping (Outer) returns (Outer);
}
"""


def test_all_proto_constructs_have_one_canonical_text() -> None:
    parsed = parse_protobuf(EVERYTHING)
    again = parse_protobuf(parsed.canonical)
    assert again.file == parsed.file
    assert again.canonical == parsed.canonical
    assert parse_protobuf(parsed.serialized).canonical == parsed.canonical
    assert parse_protobuf(parsed.normalized).normalized == parsed.normalized
    for part in (
        "  required int32 id = 1 [default = -7, deprecated = true];",
        "  map<string, Inner> by_name = 4;",
        "  optional group Result = 3 {",
        "  optional google.protobuf.Timestamp at = 7;",
        "  extensions 1000 to max;",
        "  reserved 8, 10 to 12;",
        "  rpc Find (stream Outer) returns (stream Outer.Inner) {",
    ):
        assert part in parsed.canonical.splitlines()
    assert parsed.name == "a.b.Outer"


def test_protobufs_own_files_round_trip() -> None:
    for module in (struct_pb2, type_pb2, descriptor_pb2):
        text = text_of(module.DESCRIPTOR)
        assert parse_protobuf(text).canonical == text
    pool = DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto.FromString(
        parse_protobuf(text_of(struct_pb2.DESCRIPTOR)).file.SerializeToString()
    )
    pool.Add(file)
    assert pool.FindMessageTypeByName("google.protobuf.Struct").fields_by_name["fields"].number == 1


def test_integer_options_are_read_as_decimal_hexadecimal_and_octal() -> None:
    file = parse_protobuf("option (a) = 15; option (b) = 0x1F; option (c) = 017; option (d) = -017;").file
    kept = file.options.uninterpreted_option
    assert [one.positive_int_value or one.negative_int_value for one in kept] == [15, 31, 15, -15]
    with pytest.raises(InvalidSchemaError, match="'08' is not a number"):
        parse_protobuf("option (a) = 08;")


def test_proto3_optional_fields_get_synthetic_oneofs() -> None:
    text = 'syntax = "proto3"; message M { optional int32 a = 1; optional int32 b = 2; oneof o { int32 c = 3; } }'
    file = parse_protobuf(text).file
    assert [one.name for one in file.message_type[0].oneof_decl] == ["o", "_a", "_b"]
    assert "  optional int32 a = 1;" in parse_protobuf(text).canonical


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("message M {", "Line 1 .*expected"),
        ('syntax = "proto4";', "'proto4' is not known"),
        ("message M { optional Foo f = 1; }", "'Foo' is not defined"),
        ("message M { optional int32 f = 0; }", "is not a valid number for field"),
        ("message M { optional int32 f = 19500; }", "is not a valid number for field"),
        ("message M { optional int32 a = 1; optional int32 b = 1; }", "have the number 1"),
        ("message M { reserved 1; optional int32 a = 1; }", "is reserved"),
        ("message M {} message M {}", "defined twice"),
        ('import "nowhere.proto";', "not among the references"),
        ('syntax = "proto3"; message M { required int32 a = 1; }', "no required fields"),
        ("message M {\n\n$ }", "Line 3"),
        ("bm90IGEgZGVzY3JpcHRvcg==", "neither .proto text nor a descriptor"),
        ("message M {" * 200 + "}" * 200, "nested more than 100"),
    ],
)
def test_invalid_proto_text_is_rejected_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InvalidSchemaError, match=complaint):
        parse_protobuf(text)


def problems(old: str, new: str) -> list[tuple[str, str]]:
    head = 'syntax = "proto3"; package p; '
    reader, writer = parse_protobuf(head + new), parse_protobuf(head + old)
    return [(problem.kind, problem.path) for problem in reader.read_problems(writer)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("message M { int32 a = 1; }", "message M { int64 renamed = 1; string b = 2; }"),
        ("message M { int32 a = 1; string b = 2; }", "message M { bool a = 1; }"),
        ("message M { string a = 1; }", "message M { repeated bytes a = 1; }"),
        ("enum E { A = 0; } message M { E a = 1; }", "message M { int32 a = 1; }"),
        ("message M { int32 a = 1; }", "message M { oneof o { int32 a = 1; } }"),
        ("message M { oneof o { int32 a = 1; } }", "message M { oneof o { int32 a = 1; int32 b = 2; } }"),
        ("message M { optional int32 a = 1; }", "message M { int32 a = 1; }"),
        ("message M {}", "message N {} message M {}"),
    ],
)
def test_compatible_proto_changes_have_no_problems(old: str, new: str) -> None:
    assert problems(old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("message M { int32 a = 1; }", "message M { string a = 1; }", [("FIELD_SCALAR_KIND_CHANGED", "#/M/1")]),
        ("message M { int32 a = 1; }", "message M { sint32 a = 1; }", [("FIELD_SCALAR_KIND_CHANGED", "#/M/1")]),
        ("message M { int32 a = 1; }", "message M { repeated int32 a = 1; }",
         [("FIELD_NUMERIC_LABEL_CHANGED", "#/M/1")]),
        ("message M { N a = 1; } message N {}", "message M { string a = 1; } message N {}",
         [("FIELD_KIND_CHANGED", "#/M/1")]),
        ("message M { N a = 1; } message N {} message O {}", "message M { O a = 1; } message N {} message O {}",
         [("FIELD_NAMED_TYPE_CHANGED", "#/M/1")]),
        ("message M {} message N {}", "message M {}", [("MESSAGE_REMOVED", "#/N")]),
        ("message M { int32 a = 1; int32 b = 2; }", "message M { oneof o { int32 a = 1; int32 b = 2; } }",
         [("MULTIPLE_FIELDS_MOVED_TO_ONEOF", "#/M/o")]),
        ("message M { oneof o { int32 a = 1; int32 b = 2; } }", "message M { oneof o { int32 a = 1; } }",
         [("ONEOF_FIELD_REMOVED", "#/M/o/2")]),
        ("message M { map<string, int32> a = 1; }", "message M { map<string, string> a = 1; }",
         [("FIELD_SCALAR_KIND_CHANGED", "#/M/1")]),
        ("message M { message N { int32 a = 1; } }", "message M { message N { float a = 1; } }",
         [("FIELD_SCALAR_KIND_CHANGED", "#/M/N/1")]),
    ],
)  # fmt: skip
def test_incompatible_proto_changes_are_reported_with_their_path(
    old: str, new: str, expected: list[tuple[str, str]]
) -> None:
    assert problems(old, new) == expected


def test_packages_and_imported_messages_are_compared() -> None:
    assert [p.kind for p in parse_protobuf("package b;").read_problems(parse_protobuf("package a;"))] == [
        "PACKAGE_CHANGED"
    ]
    main = 'import "n.proto"; message M { optional n.N n = 1; }'
    old = parse_protobuf(main, {"n.proto": "package n; message N { optional int32 a = 1; }"})
    new = parse_protobuf(main, {"n.proto": "package n; message N { optional string a = 1; }"})
    assert [p.kind for p in new.read_problems(old)] == ["FIELD_SCALAR_KIND_CHANGED"]
