"""The Arrow schema must equal the schema that Spark derives from the columns."""

from __future__ import annotations

import pytest

from barnabas.spark.schema import DDL, DEFAULT_COLUMNS, arrow_schema, spark_schema


def test_spark_schema_is_ddl() -> None:
    assert spark_schema(("key", "timestampType")) == "`key` binary, `timestampType` int"


@pytest.mark.parametrize("columns", [tuple(DDL), DEFAULT_COLUMNS, ("headers", "offset")])
def test_arrow_schema_equals_sparks(columns: tuple[str, ...]) -> None:
    types = pytest.importorskip("pyspark.sql.types")
    pandas_types = pytest.importorskip("pyspark.sql.pandas.types")
    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    spark_types = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(header),
    }
    schema = types.StructType([types.StructField(name, spark_types[name]) for name in columns])
    assert pandas_types.to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(columns), check_metadata=True)
