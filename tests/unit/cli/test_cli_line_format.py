"""Parsing lines into records and formatting records as lines, with Kafka's property names."""

from __future__ import annotations

import json

import pytest

from barnabas.cli.records.consume import Lines
from barnabas.cli.records.consuming import Start
from barnabas.cli.records.deserializers import deserializer
from barnabas.cli.records.line_format import LinePrinter, LineReader, unescape
from barnabas.cli.records.record_text import LineTemplate, json_lines, time_text
from barnabas.client.values import ConsumerRecord, Headers


def record(
    value: bytes | None = b"v",
    *,
    key: bytes | None = b"k",
    offset: int = 7,
    timestamp: int = 1_700_000_000_123,
    headers: Headers = (),
    leader_epoch: int = 4,
) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord("t", 2, offset, timestamp, 0, key, value, headers, leader_epoch)


def test_line_without_separators_is_a_value() -> None:
    assert LineReader().parse(b"a\tb") == (None, b"a\tb", ())


def test_line_is_split_into_headers_key_and_value() -> None:
    reader = LineReader.from_properties(
        {"parse.key": "true", "parse.headers": "TRUE", "key.separator": "|", "null.marker": "-"}
    )
    assert reader.parse(b"h1:x,h2:-\tkey|a|b") == (b"key", b"a|b", (("h1", b"x"), ("h2", None)))
    assert reader.parse(b"-\tkey|-") == (b"key", None, ())


def test_a_missing_separator_names_the_line() -> None:
    reader = LineReader(parse_key=True, key_separator=":")
    with pytest.raises(ValueError, match=r"line 3: no key.separator ':' in 'abc'"):
        reader.parse(b"abc", 3)
    assert LineReader(parse_key=True, ignore_error=True).parse(b"abc") == (None, b"abc", ())


def test_unknown_properties_raise_value_error() -> None:
    with pytest.raises(ValueError, match=r"'parse\.keys' is not a property"):
        LineReader.from_properties({"parse.keys": "true"})
    with pytest.raises(ValueError, match="unknown deserializer"):
        LinePrinter.from_properties({"value.deserializer": "io.example.AvroDeserializer"})


def test_unescape_changes_only_escapes() -> None:
    assert unescape(r"\t→\x41\u00e9\q\\") == "\t→Aé\\q\\"


def test_printed_parts_have_kafkas_order() -> None:
    names = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
    printer = LinePrinter.from_properties({f"print.{name}": "true" for name in names})
    line = printer.format(record(headers=(("a", b"1"), ("b", None))))
    assert line == b"CreateTime:1700000000123\tPartition:2\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:4\ta:1,b:null\tk\tv\n"
    assert b"Epoch:NOT_PRESENT\tNO_HEADERS" in printer.format(record(leader_epoch=-1))


@pytest.mark.parametrize("key", [False, True])
def test_fast_paths_print_the_same_as_the_general_path(key: bool) -> None:
    records = [record(), record(None, key=None), record(b"")]
    fast = LinePrinter(print_key=key, key_separator="=", line_separator="|", null_literal="~")
    # A converter that changes nothing forces the general path.
    slow = LinePrinter(
        print_key=key, key_separator="=", line_separator="|", null_literal="~", value_text=lambda data: data
    )
    assert fast.format_many(records) == slow.format_many(records)
    assert fast.format_many([]) == b""


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("LongDeserializer", b"\0\0\0\0\0\0\0\x2a", b"42"),
        ("org.apache.kafka.common.serialization.IntegerDeserializer", b"\xff\xff\xff\xfe", b"-2"),
        ("ShortDeserializer", b"\1\0", b"256"),
        ("DoubleDeserializer", b"\x3f\xf8\0\0\0\0\0\0", b"1.5"),
        ("FloatDeserializer", b"\x3d\xcc\xcc\xcd", b"0.1"),
        ("BooleanDeserializer", b"\1", b"true"),
    ],
)
def test_kafkas_deserializers_convert_bytes_to_text(name: str, data: bytes, text: bytes) -> None:
    to_text = deserializer(name)
    assert to_text is not None
    assert to_text(data) == text
    with pytest.raises(ValueError, match="received by"):
        to_text(data + b"xxx")


def test_json_output_keeps_all_record_data() -> None:
    lines = json_lines([record(b"\xff\0", key="schlüssel".encode(), headers=(("h", b"1"), ("h", None)))])
    assert json.loads(lines) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
        "time": "2023-11-14T22:13:20.123Z",
        "key": "schlüssel",
        "value": {"base64": "/wA="},
        "headers": [["h", "1"], ["h", None]],
    }


def test_timestamps_outside_the_calendar_have_no_time_text() -> None:
    assert time_text(-1) is None
    assert time_text((1 << 63) - 1) is None
    assert time_text(0) == "1970-01-01T00:00:00.000Z"


def test_template_replaces_fields() -> None:
    template = LineTemplate.parse(r"{partition}@{offset}\t{{{key}}}={value} {headers} {time}")
    expected = b"2@7\t{k}=v a:1 2023-11-14T22:13:20.123Z\n"
    assert template.format_many([record(headers=(("a", b"1"),))]) == expected
    with pytest.raises(ValueError, match=r"\{size\} is not a field; the fields are topic, partition"):
        LineTemplate.parse("{size}")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        ("17", Start("offset", 17)),
        ("-5", Start("last", 5)),
        ("1970-01-01T00:00:02Z", Start("time", 2000)),
    ],
)
def test_start_positions_are_parsed(text: str, start: Start) -> None:
    assert Start.parse(text) == start


def test_invalid_start_position_raises_value_error() -> None:
    with pytest.raises(ValueError, match="is not a start position"):
        Start.parse("current")


def test_lines_sink_returns_the_number_of_bytes_written() -> None:
    import io

    out = io.BytesIO()
    assert Lines(out, LinePrinter().format_many).write([record(b"abc"), record(b"d")]) == len(b"abc\nd\n")
    assert out.getvalue() == b"abc\nd\n"
