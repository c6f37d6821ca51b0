"""The Arrow schema must equal the schema that Spark derives from the columns."""

from __future__ import annotations

import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.spark.schema import DDL, DEFAULT_COLUMNS, arrow_schema, spark_schema


def test_spark_schema_is_ddl() -> None:
    assert spark_schema(("key", "timestampType")) == "`key` binary, `timestampType` int"


@pytest.mark.parametrize("columns", [tuple(DDL), DEFAULT_COLUMNS, ("headers", "offset")])
def test_arrow_schema_equals_sparks(columns: tuple[str, ...]) -> None:
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
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(columns), check_metadata=True)
