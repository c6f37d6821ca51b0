"""Converts between batches and Arrow, without a Python object for each record. Needs the `columnar` extra: numpy,
numba, pyarrow."""

from barnabas.protocol.records.columnar.decode import (
    COLUMNS,
    DecodeOptions,
    decode_to_arrow,
    iter_arrow,
    schema,
    table_to_arrow,
)
from barnabas.protocol.records.columnar.encode import EncodedBatch, EncodeOptions, encode_from_arrow
from barnabas.protocol.records.columnar.newest import NewestByKey
from barnabas.protocol.records.columnar.partition import partitions_for_keys, rows_by_partition

__all__ = [
    "COLUMNS",
    "DecodeOptions",
    "EncodeOptions",
    "EncodedBatch",
    "NewestByKey",
    "decode_to_arrow",
    "encode_from_arrow",
    "iter_arrow",
    "partitions_for_keys",
    "rows_by_partition",
    "schema",
    "table_to_arrow",
]
