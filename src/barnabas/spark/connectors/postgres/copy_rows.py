"""Codec: rows of `COPY .. TO STDOUT (FORMAT csv, FORCE_QUOTE *)` -> binary columns of values in text form.

Every value is in quotes, in which a quote is doubled; a null is empty without quotes. Arrow's parser reads such text.
Source: PostgreSQL's manual, section "COPY", "CSV Format".
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import csv

from barnabas.spark.connectors.postgres.errors import PostgresValueError


def copy_statement(columns: str, table: str, condition: str | None = None) -> str:
    """The statement whose rows `decode_copy` reads; `columns` and `table` are quoted, `condition` is SQL."""
    where = "" if condition is None else f" WHERE {condition}"
    return f"COPY (SELECT {columns} FROM {table}{where}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"


def decode_copy(data: bytes, columns: int) -> list[Any]:
    """One binary array for each column. Raises PostgresValueError if a row has another number of values."""
    names = [str(number) for number in range(columns)]
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(names, pa.binary()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise PostgresValueError(
            f"the server's rows cannot be read as CSV ({error}): check that no proxy changes the text of COPY"
        ) from error
    return [column.combine_chunks() for column in table.columns]
