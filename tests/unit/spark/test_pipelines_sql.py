"""The statements of a pipeline's SQL file."""

from __future__ import annotations

import pytest

from barnabas.spark.pipelines.errors import DefinitionError
from barnabas.spark.pipelines.sql import SqlChangeFlow, SqlDataset, SqlFlow, SqlSetting, parse_statements, quoted_name


def test_statements_are_split_outside_of_strings_and_comments() -> None:
    text = """
-- a comment; with a semicolon
CREATE MATERIALIZED VIEW totals COMMENT 'a; b' AS
SELECT ';' AS x, /* ; */ count(*) FROM orders;

CREATE STREAMING TABLE third AS SELECT v FROM STREAM(orders_log) ;;
"""
    assert parse_statements(text, "a.sql") == [
        SqlDataset("materialized view", "totals", 3, "SELECT ';' AS x, /* ; */ count(*) FROM orders", comment="a; b"),
        SqlDataset("streaming table", "third", 6, "SELECT v FROM STREAM(orders_log)"),
    ]


def test_all_clauses() -> None:
    text = """CREATE STREAMING TABLE IF NOT EXISTS db.`t 1` (a INT, b DECIMAL(10, 2) COMMENT ')x') USING parquet
    PARTITIONED BY (a, `b`) CLUSTER BY (b) COMMENT "it''s" TBLPROPERTIES ('k.a' = 'v', other.key = 'w', z 1)
    AS WITH x AS (SELECT 1) SELECT * FROM x"""
    assert parse_statements(text, "a.sql") == [
        SqlDataset(
            "streaming table",
            "db.`t 1`",
            1,
            "WITH x AS (SELECT 1) SELECT * FROM x",
            "a INT, b DECIMAL(10, 2) COMMENT ')x'",
            "parquet",
            "it''s",
            ("a", "b"),
            ("b",),
            {"k.a": "v", "other.key": "w", "z": "1"},
        )
    ]


def test_a_table_without_a_query_a_flow_a_view_and_a_setting() -> None:
    text = """SET spark.sql.ansi.enabled = false;
create streaming table t;
CREATE FLOW f COMMENT 'c' AS INSERT INTO t BY NAME SELECT * FROM STREAM s;
CREATE TEMPORARY VIEW v AS SELECT 1"""
    assert parse_statements(text, "a.sql") == [
        SqlSetting("spark.sql.ansi.enabled", "false"),
        SqlDataset("streaming table", "t", 2),
        SqlFlow("f", "t", 3, "SELECT * FROM STREAM s"),
        SqlDataset("temporary view", "v", 4, "SELECT 1"),
    ]


def test_change_flows() -> None:
    text = """CREATE FLOW f COMMENT 'c' AS AUTO CDC INTO t FROM STREAM(db.s) KEYS (id, `n`)
    APPLY AS DELETE WHEN op = 'SEQUENCE BY' AND (x SEQUENCE BY 1) SEQUENCE BY struct(ts, n)
    COLUMNS * EXCEPT (op) STORED AS SCD TYPE 1;
CREATE STREAMING TABLE u USING delta FLOW AUTO CDC FROM STREAM s KEYS (id) COLUMNS (id, n) SEQUENCE BY n"""
    assert parse_statements(text, "a.sql") == [
        SqlChangeFlow(
            1,
            {
                "name": "f",
                "target": "t",
                "source": "db.s",
                "keys": ("id", "n"),
                "apply_as_deletes": "op = 'SEQUENCE BY' AND (x SEQUENCE BY 1)",
                "sequence_by": "struct(ts, n)",
                "except_column_list": ("op",),
                "stored_as_scd_type": "1",
            },
        ),
        SqlDataset("streaming table", "u", 4, format="delta"),
        SqlChangeFlow(
            4,
            {
                "name": None,
                "target": "u",
                "source": "s",
                "keys": ("id",),
                "column_list": ("id", "n"),
                "sequence_by": "n",
            },
        ),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1", "a.sql, line 1: CREATE is expected, not 'SELECT'"),
        ("\n\nCREATE TABLE t AS SELECT 1", "a.sql, line 3: CREATE TABLE is not a statement of a pipeline"),
        ("CREATE MATERIALIZED VIEW v", "the materialized view v has no query"),
        ("CREATE STREAMING TABLE t SELECT 1", "'SELECT' is not expected here; the query begins with AS"),
        ("CREATE STREAMING TABLE t AS", "the query is missing"),
        ("CREATE FLOW f AS INSERT INTO t SELECT 1", "BY is expected, not 'SELECT'"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM s", "STREAM is expected, not 's'"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (a)", "SEQUENCE BY is missing"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (a) SEQUENCE BY", "an expression is missing"),
        ("CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (a) IGNORE NULL", "'IGNORE' is not a clause of AUTO CDC"),
        ("USE db", "set catalog and database in the pipeline's spec"),
        ("CREATE STREAMING TABLE t (a INT", "the statement ends too early"),
        ("CREATE STREAMING TABLE 1", "a name is expected, not '1'"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_statements(text, "a.sql")
    assert message in str(caught.value)


def test_the_parts_of_a_name() -> None:
    assert quoted_name("a.`b.c`.d") == ("a", "b.c", "d")
    assert quoted_name("`x``y`") == ("x`y",)
