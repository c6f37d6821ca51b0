"""Texts of columns cut, masked and hashed; and names of schemas and fields for Avro."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs
from tests.unit.spark.connectors.events.test_change_events import OPTIONS, changes, keys, values

from barnabas.spark.connectors.arrow_fields import schema_of
from barnabas.spark.connectors.events.changes import ColumnSchema, Meaning, TableSchema
from barnabas.spark.connectors.events.envelope import change_records
from barnabas.spark.connectors.events.errors import EventError
from barnabas.spark.connectors.events.masking import java_serialized, masked, parse_column_rules, with_hexadecimal_salt
from barnabas.spark.connectors.events.names import NameAdjustment, adjusted_name
from barnabas.spark.errors import OptionError

COLUMNS = (
    ColumnSchema("mail", pa.string(), False),
    ColumnSchema("note", pa.string()),
    ColumnSchema("size", pa.int32()),
    ColumnSchema("extra", pa.string(), meaning=Meaning.JSON),
)
TABLE = TableSchema("db", "public", "users", COLUMNS, (0,))
ROWS = [("a@b", "a long note", 3, "{}"), ("c@d", None, None, None)]


def shown(**rules: str) -> Any:
    """The rows of events, and their keys."""
    texts = {name.replace("_", "."): text for name, text in rules.items()}
    options = structs.replace(OPTIONS, columns=parse_column_rules(texts))
    batch = change_records(changes("cc", None, ROWS, TABLE), options)
    return [value["after"] for value in values(batch)], [key["mail"] for key in keys(batch)]


def test_texts_are_cut_and_other_types_are_not() -> None:
    rows, _ = shown(column_truncate_to_6_chars=r"public\.users\..*")
    assert [(row["mail"], row["note"], row["size"], row["extra"]) for row in rows] == [
        ("a@b", "a long", 3, "{}"),
        ("c@d", None, None, None),
    ]


def test_masks_hide_null_too_and_keys_stay() -> None:
    rows, found = shown(column_mask_with_3_chars="PUBLIC.USERS.(mail|note)", column_mask_with_0_chars="other")
    assert [(row["mail"], row["note"]) for row in rows] == [("***", "***")] * 2
    assert found == ["a@b", "c@d"]


def test_a_mask_of_no_characters_is_empty() -> None:
    assert [row["note"] for row in shown(column_mask_with_0_chars=r"public\.users\.note")[0]] == ["", ""]


def test_hashes_are_those_of_debezium() -> None:
    name = "column.mask.hash.v2.SHA-256.with.salt.hex.437a51"
    rule, old = parse_column_rules({name: ".*", name.replace("v2.", ""): ".*"})
    column = pa.array(["abc", None, "abc"])
    expected = hashlib.sha256(b"CzQabc").hexdigest()
    assert rule.apply(column).to_pylist() == [expected, None, expected]
    # As java.io.ObjectOutputStream and java.security.MessageDigest of Java 17 make them.
    assert old.apply(column)[0].as_py() == "1a1173bc7fc3efc30805bdbf88c3d41702072c253a591621bb2ac7d7d8674864"
    digest = hashlib.sha256(b"CzQ" + java_serialized("é\0\U0001f600")).hexdigest()
    assert digest == "210292ffef4a9d996b2a14919b96d583a1c3a0b8e9809438da98a80a285e4aca"
    assert len(java_serialized("x" * 70_000)) == 70_013


def test_the_old_row_is_masked_and_rows_of_tables_keep_their_keys() -> None:
    batch = changes("u", [ROWS[0]], [("a@b", "new", 1, None)], TABLE)
    rules = parse_column_rules({"column.mask.with.1.chars": r".*\.(mail|note)"})
    found = masked(batch, rules, keeps_keys=True)
    assert found.before.to_pylist()[0] == {"mail": "a@b", "note": "*", "size": 3, "extra": "{}"}
    assert masked(batch, rules).after.to_pylist()[0]["mail"] == "*"
    assert masked(batch, parse_column_rules({"column.mask.with.1.chars": "other"})) is batch


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("column.truncate.to.0.chars", "there is no option"),
        ("column.mask.with.some.chars", "there is no option"),
        ("column.mask.hash.v2.rot13.with.salt.hex.00", "names the algorithm rot13"),
        ("column.mask.hash.v2.sha-256.with.salt.abc", "hex.616263 for the salt abc"),
    ],
)
def test_a_wrong_rule_is_refused(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_column_rules({name: "a.b.c"})


def test_a_salt_becomes_hexadecimal_once() -> None:
    found = with_hexadecimal_salt("column.mask.hash.MD5.with.salt.aB.c")
    assert found == "column.mask.hash.MD5.with.salt.hex.61422e63"
    assert with_hexadecimal_salt(found) == found
    assert with_hexadecimal_salt("column.mask.with.3.chars") == "column.mask.with.3.chars"


@pytest.mark.parametrize(
    ("name", "is_field", "avro", "escaped"),
    [
        ("my-shop.public.t.Value", False, "my_shop.public.t.Value", "my_u002dshop.public.t.Value"),
        ("1st.a_b", False, "_1st.a_b", "_u0031st.a_u005fb"),
        ("a.b c", True, "a_b_c", "a_u002eb_u0020c"),
        ("é", True, "_", "_u00e9"),
        ("plain", True, "plain", "plain"),
    ],
)
def test_names_are_those_of_debezium(name: str, is_field: bool, avro: str, escaped: str) -> None:
    modes = (NameAdjustment.NONE, NameAdjustment.AVRO, NameAdjustment.AVRO_UNICODE)
    assert [adjusted_name(name, mode, is_field=is_field) for mode in modes] == [name, avro, escaped]


def test_schemas_and_fields_have_adjusted_names() -> None:
    table = TableSchema("db", "public", "t", (ColumnSchema("id-1", pa.int64(), False),), (0,))
    options = structs.replace(
        OPTIONS, topic_prefix="my-shop", schema_names=NameAdjustment.AVRO, field_names=NameAdjustment.AVRO
    )
    batch = change_records(changes("c", None, [(1,)], table), options)
    assert (keys(batch), values(batch)[0]["after"]) == ([{"id_1": 1}], {"id_1": 1})
    names = [schema_of(batch.schema.field(part)).name for part in ("key", "value")]
    assert names == ["my_shop.public.t.Key", "my_shop.public.t.Envelope"]
    assert batch.column("topic")[0].as_py() == "my-shop.public.t"
    twice = TableSchema("db", "public", "t", (*table.columns, ColumnSchema("id_1", pa.int64())), ())
    with pytest.raises(EventError, match=r"two columns of public\.t have one name"):
        change_records(changes("c", None, [(1, 2)], twice), options)
