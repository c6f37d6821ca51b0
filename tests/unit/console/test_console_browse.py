"""Searches, queries and decoding."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from barnabas.client.values import ConsumerRecord
from barnabas.console.access.masking import MaskRule
from barnabas.console.browse.decoding import Decoded, Decoder, as_json, decode_bytes
from barnabas.console.browse.filters import parse_filter, parse_path
from barnabas.console.browse.query import BrowseQuery, parse_query, positions_text
from barnabas.console.browse.records import RecordView, Viewer, newest_of
from barnabas.console.errors import BadInputError

RECORD = {
    "key": "order-7",
    "partition": 2,
    "offset": 41,
    "timestamp": 1_700_000_000_000,
    "value": {"id": 7, "state": "NEW", "total": 12.5, "items": [{"sku": "a"}, {"sku": "b"}], "note": None, "ok": True},
    "headers": {"trace": "abc"},
}


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("value.id = 7", True),
        ("$.id == 7", True),
        ('value.id = "7"', False),
        ("value.id != 8", True),
        ("value.absent != 8", True),
        ("value.absent = 8", False),
        ("value.absent exists", False),
        ("not value.absent exists", True),
        ("value.note exists", True),
        ("value.note = null", True),
        ("value.total >= 12.5 and value.total < 13", True),
        ("value.items[1].sku = b", True),
        ("value.items[2].sku = b", False),
        ("value.items contains {}", False),
        ('value.state in ["NEW", "PAID"]', True),
        ("value.state in [1, 2]", False),
        ("key startswith order-", True),
        ("key contains ORDER", True),
        ("value contains sku", True),
        ("headers.trace = abc or value.id = 0", True),
        ("value.id = 0 or value.id = 1 and offset = 41", False),
        ("(value.id = 0 or value.id = 7) and offset = 41", True),
        ("not (value.id = 7)", False),
        ("value.ok = true", True),
        ("value.ok = 1", False),
        ("value.state > 5", False),
        ("partition = 2 AND offset > 40", True),
        ("timestamp >= 1700000000000", True),
    ],
)
def test_a_search_accepts_what_its_conditions_say(text: str, accepted: bool) -> None:
    assert parse_filter(text).accepts(RECORD) is accepted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("value.id", "ends where an operator"),
        ("value.id =", "ends where a value"),
        ("value.id ~ 7", "is not an operator"),
        ("body.id = 7", "begins with none of"),
        ("value.id = 7 value.id = 8", "where `and` or `or` is expected"),
        ("(value.id = 7", "lacks a closing parenthesis"),
        ("value.id in 7", "needs a list"),
        ("", "ends where a path"),
        ("not " * 30 + "value.id = 7", "more than 20 levels"),
        ("(" * 30 + "value.id = 7" + ")" * 30, "more than 20 levels"),
        ("value.id = 7 and " * 100, "at most 1000 characters"),
        ('value.a = "open', "cannot be read from"),
        ("__import__('os').system = 1", "begins with none of"),
    ],
)
def test_an_invalid_search_is_explained(text: str, problem: str) -> None:
    with pytest.raises(BadInputError, match=problem):
        parse_filter(text)


def test_paths_are_split_into_names_and_places() -> None:
    assert parse_path("$.items[0].sku") == ("value", "items", 0, "sku")
    assert parse_path("headers.trace-id") == ("headers", "trace-id")


def query(**given: str) -> BrowseQuery:
    return parse_query(given, limit_max=500, now_ms=3_600_000)


def test_a_query_without_fields_reads_the_newest_records() -> None:
    assert query() == BrowseQuery("newest", limit=50)


def test_the_fields_of_a_query_are_read() -> None:
    assert query(start="time", at="PT30M").time_ms == 1_800_000
    assert query(start="time", at="1970-01-01T01:00").time_ms == 3_600_000
    assert query(start="offset", at="12", partitions="3, 1").partitions == (1, 3)
    assert query(start="positions", positions="0:5,2:7").positions == {0: 5, 2: 7}
    assert query(limit="100000").limit == 500
    assert positions_text({2: 7, 0: 5}) == "0:5,2:7"


@pytest.mark.parametrize(
    "given",
    [
        {"start": "yesterday"},
        {"start": "offset", "at": "-1"},
        {"start": "time", "at": "noon"},
        {"limit": "many"},
        {"partitions": "a"},
        {"positions": "1", "start": "positions"},
        {"value_format": "pickle"},
    ],
)
def test_an_invalid_field_of_a_query_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(BadInputError):
        query(**given)


@pytest.mark.parametrize(
    ("data", "wanted", "expected"),
    [
        (b'{"a": 1}', "auto", Decoded("json", {"a": 1}, 8)),
        (b"12", "auto", Decoded("json", 12, 2)),
        (b"{broken", "auto", Decoded("text", "{broken", 7)),
        (b"NaN", "auto", Decoded("text", "NaN", 3)),
        ("grüße".encode(), "auto", Decoded("text", "grüße", 7)),
        (b"\x00\xff", "auto", Decoded("hex", "00 ff", 2)),
        (b"a\x00b", "auto", Decoded("hex", "61 00 62", 3)),
        (b"\xff", "text", Decoded("text", "\ufffd", 1)),
        (b"\x00\x00\x00\x05", "number", Decoded("number", 5, 4)),
        (b"ab", "base64", Decoded("base64", "YWI=", 2)),
        (b"ab", "hex", Decoded("hex", "61 62", 2)),
        (b"", "auto", Decoded("text", "", 0)),
        (b"abc", "number", Decoded("hex", "61 62 63", 3, problem="Not decoded: 3 bytes are not a number of 1, 2, 4 or"
                                   " 8 bytes.")),
        (b"[" * 100_000, "auto", Decoded("text", "[" * 100_000, 100_000)),
    ],
)  # fmt: skip
def test_bytes_are_decoded_as_the_first_format_that_fits(data: bytes, wanted: str, expected: Decoded) -> None:
    assert decode_bytes(data, wanted) == expected


class Schemas:
    """A registry that knows the id 1."""

    async def decode(self, topic: str, data: bytes, *, is_key: bool) -> tuple[str, Any]:
        if data[4] != 1:
            raise ValueError("Schema not found")
        return "avro", {"topic": topic, "key": is_key}


def test_framed_values_are_decoded_by_their_schema() -> None:
    decoder = Decoder(Schemas())

    async def decode(data: bytes | None, wanted: str = "auto") -> Decoded:
        return await decoder.decode("t", data, wanted)

    known, unknown = b"\x00\x00\x00\x00\x01rest", b"\x00\x00\x00\x00\x02rest"
    assert asyncio.run(decode(known)) == Decoded("avro", {"topic": "t", "key": False}, 9, 1)
    assert asyncio.run(decode(unknown)).problem == "Schema 2: Schema not found"
    assert asyncio.run(decode(None)) == Decoded("null", None, 0)
    assert asyncio.run(decode(b"{}", "registry")).problem == "Not decoded: the bytes have no schema id."


def record(value: bytes | None, *, key: bytes = b"k", headers: Any = ()) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("customers", 0, 5, 1_000, 0, key, value, headers)  # type: ignore[arg-type]


def view(rules: list[str], given: ConsumerRecord[bytes, bytes], **fields: str) -> RecordView | None:
    viewer = Viewer("customers", Decoder(None), [MaskRule.parse(rule) for rule in rules], lambda text: "0" * 64)
    return asyncio.run(viewer.view(given, query(**fields)))


def test_a_search_cannot_find_a_masked_value() -> None:
    given = record(b'{"email": "a@b.c", "id": 1}')
    rules = ["customers:value.email=replace"]
    assert view([], given, search='value.email = "a@b.c"') is not None
    assert view(rules, given, search='value.email = "a@b.c"') is None
    assert view(rules, given, search="value.id = 1") is not None


@pytest.mark.parametrize("wanted", ["auto", "text", "hex", "base64"])
def test_no_format_shows_a_masked_field(wanted: str) -> None:
    shown = view(["customers:value.email=replace"], record(b'{"email": "secret"}'), value_format=wanted)
    assert shown is not None
    assert "secret" not in str(shown.document())
    assert b"secret".hex(" ") not in str(shown.document())


def test_keys_and_headers_are_masked_too() -> None:
    given = record(b"{}", key=b"alice", headers=[("auth", b"token"), ("trace", b"t1")])
    shown = view(["customers:key=replace", "customers:headers.auth=remove"], given)
    assert shown is not None
    assert shown.document()["key"] == "***"
    assert shown.document()["headers"] == [{"name": "trace", "value": "t1"}]
    assert view(["customers:key=replace"], given, key="alice") is None


def test_the_newest_records_keep_the_order_of_offsets_within_a_partition() -> None:
    none = Decoded("null", None, 0)

    def one(partition: int, offset: int, timestamp_ms: int) -> RecordView:
        return RecordView(partition, offset, timestamp_ms, none, none, ())

    found = [one(0, 1, 50), one(0, 2, 10), one(1, 7, 40), one(1, 8, 30)]
    newest, dropped = newest_of(found, 3)
    assert [(v.partition, v.offset) for v in newest] == [(1, 8), (1, 7), (0, 2)]
    assert dropped == {0: 1}


def test_a_time_after_all_times_of_records_is_the_latest_time() -> None:
    assert parse_query({"start": "time", "at": "9" * 30}, limit_max=10, now_ms=0).time_ms == 2**63 - 1


def test_numbers_of_avro_that_json_does_not_have_are_texts() -> None:
    assert as_json("avro", {"a": math.nan, "b": -math.inf}) == {"a": "NaN", "b": "-Infinity"}
