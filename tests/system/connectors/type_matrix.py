"""What becomes of the extreme values of each type in each sink: written, read back, compared, and shown as lines.

    =            the sink has the value
    null         the value has no form, and is null
    a text       the form in which the sink has it, in quotes if it is a text
    ! a text     the query stops; the beginning of the message

A sink gets the values in three forms: rows (typed columns), events with schemas, and events without them. All values of
a type are written at once; if that fails, one by one.
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from barnabas.core.errors import BarnabasError
from barnabas.spark.connectors.files.opening import file_plan
from barnabas.spark.connectors.lake.opening import delta_plan, iceberg_plan
from barnabas.spark.connectors.sinking.writer import SinkPlan
from barnabas.spark.connectors.sql.sinks import opening
from tests.system.connectors.pathways import write
from tests.system.connectors.type_values import Form, Value, ValueType

Found = Mapping[int, Any]
_UNWRAP = {"transforms": "flat", "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState"}
_SHOWN = 60
_MESSAGE = 110


def _json(schemas: str) -> dict[str, str]:
    parts = {f"{part}.converter": "JsonConverter" for part in ("key", "value")}
    return parts | {f"{part}.converter.schemas.enable": schemas for part in ("key", "value")}


FORMS: Mapping[str, Mapping[str, str]] = {
    "rows": {"pk.fields": "id"},
    "events": {**_json("true"), **_UNWRAP, "pk.mode": "record_key"},
    "events without schemas": {**_json("false"), **_UNWRAP, "pk.mode": "record_key"},
}


@dataclass(frozen=True)
class MatrixSink:
    """A sink: the plan that writes a new table, with options, and what the table has then, by id."""

    name: str
    plan: Callable[[str, Mapping[str, str]], SinkPlan]
    read: Callable[[str, str], Found]
    merges: bool = True


# -- sinks -------------------------------------------------------------------------------------------------------------


def sql_sink(name: str, database: Any, column: str) -> MatrixSink:
    """A running database (`sql_databases.py`). `column` is how a statement reads a column."""

    def plan(table: str, options: Mapping[str, str]) -> SinkPlan:
        given = {**options, "dbtable": table, "auto.create": "true"}
        made: SinkPlan = database.plan(**{key.replace(".", "_"): text for key, text in given.items()})
        return made

    def read(table: str, value: str) -> Found:
        return dict(database.rows(f"SELECT id, {column.format(value)} FROM {table}"))

    return MatrixSink(name, plan, read)


def file_sinks(folder: Path) -> Iterator[MatrixSink]:
    """SQLite, DuckDB, Delta, Iceberg and Parquet in a directory."""

    def sqlite_plan(table: str, options: Mapping[str, str]) -> SinkPlan:
        return opening.sqlite_plan(
            {**options, "connection.url": f"jdbc:sqlite:{folder}/m.sqlite", "dbtable": table, "auto.create": "true"}
        )

    def sqlite_read(table: str, value: str) -> Found:
        with sqlite3.connect(folder / "m.sqlite") as connection:
            return dict(connection.execute(f"SELECT id, {value} FROM {table}").fetchall())

    def duckdb_plan(table: str, options: Mapping[str, str]) -> SinkPlan:
        return opening.duckdb_plan(
            {**options, "connection.url": f"jdbc:duckdb:{folder}/m.duckdb", "dbtable": table, "auto.create": "true"}
        )

    def duckdb_read(table: str, value: str) -> Found:
        with duckdb.connect(str(folder / "m.duckdb"), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            ((kind,),) = connection.execute(f"SELECT DISTINCT typeof({value}) FROM {table}").fetchall()[:1]
            native = kind in ("BLOB", "DOUBLE", "FLOAT", "BOOLEAN") or kind.endswith("]")
            shown = value if native else f"CAST({value} AS VARCHAR)"
            return dict(connection.execute(f"SELECT id, {shown} FROM {table}").fetchall())

    def iceberg(table: str, options: Mapping[str, str]) -> SinkPlan:
        given = {"table": f"m.{table}", "catalog.warehouse": f"{folder}/iceberg"}
        return iceberg_plan({**options, **given})

    def iceberg_read(table: str, value: str) -> Found:
        target: Any = iceberg(table, {"insert.mode": "insert"}).target
        return _of_arrow(target.open_table(f"m.{table}", pa.schema([]))._table.scan().to_arrow(), value)

    yield MatrixSink("sqlite", sqlite_plan, sqlite_read)
    yield MatrixSink("duckdb", duckdb_plan, duckdb_read)
    yield MatrixSink(
        "delta",
        lambda table, options: delta_plan({**options, "path": f"{folder}/{table}"}),
        lambda table, value: _of_arrow(DeltaTable(f"{folder}/{table}").to_pyarrow_table(), value),
    )
    yield MatrixSink("iceberg", iceberg, iceberg_read)
    yield MatrixSink(
        "parquet",
        lambda table, options: file_plan({**options, "path": f"{folder}/p_{table}", "file.format": "parquet"}),
        lambda table, value: _of_arrow(
            pa.concat_tables([pq.read_table(path) for path in sorted(Path(f"{folder}/p_{table}").glob("*.parquet"))]),
            value,
        ),
        merges=False,
    )


def _of_arrow(table: Any, value: str) -> Found:
    return dict(zip(table["id"].to_pylist(), table[value].to_pylist(maps_as_pydicts="strict"), strict=True))


# -- outcomes ----------------------------------------------------------------------------------------------------------


def outcomes(sink: MatrixSink, form: str, one: ValueType, batch: Any, table: str) -> list[str]:
    """What becomes of each value of a type that the source reads. `batch` has the rows or events of all columns."""
    values = [value for value in one.values if value.refused is None]
    try:
        found = _written(sink, form, one, batch, table)
        return [outcome(one, value, found[row + 1]) for row, value in enumerate(values)]
    except BarnabasError:
        pass
    result = []
    for row, value in enumerate(values):
        try:
            found = _written(sink, form, one, batch.slice(row, 1), f"{table}_{row}")
            result.append(outcome(one, value, found[row + 1]))
        except BarnabasError as error:
            text = re.sub(r"(c_|a_)[a-z0-9_]+_\d+\b|r\d+_[a-z0-9_]+|s\d+\.", "t", str(error)).replace("\n", " ")
            result.append(f"! {text[:_MESSAGE]}")
    return result


def _written(sink: MatrixSink, form: str, one: ValueType, batch: Any, table: str) -> Found:
    column = one.name
    options = dict(FORMS[form])
    if form == "rows":
        batch = batch.select(["id", column])
    else:
        options["fields.include"] = column
        options |= {"transforms": "flat,some", "transforms.some.type": "ReplaceField$Value"}
        options["transforms.some.include"] = f"id,{column}"
    if sink.merges:
        options["insert.mode"] = "upsert"
    else:
        options = {name: text for name, text in options.items() if not name.startswith(("pk.", "fields."))}
    write(sink.plan(table, options), 0, batch, query=str(uuid4()))
    # MariaDB prints a FLOAT with six digits.
    is_short = sink.name == "mariadb" and one.form is Form.FLOAT32 and form != "events without schemas"
    return sink.read(table, f"{column} + 0e0" if is_short else column)


def outcome(one: ValueType, value: Value, found: Any) -> str:
    """How the value that was read from a sink is shown."""
    if value.text is None and found is None:
        return "null"
    if value.text is not None and same(one.form, value.text, found, one.element):
        return "="
    return shown(found)


def shown(found: Any) -> str:
    """A value as a short text."""
    if isinstance(found, bytes):
        text = "\\x" + found.hex()
    elif isinstance(found, str):
        text = json.dumps(found, ensure_ascii=False)
    else:
        text = repr(found).replace("datetime.", "")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


# -- comparison --------------------------------------------------------------------------------------------------------


def same(form: Form, text: str, found: Any, element: Form = Form.TEXT) -> bool:
    """Whether a value is the one that the server prints so."""
    if found is None:
        return False
    try:
        match form:
            case Form.NUMBER:
                return _decimal(found) is not None and str(_decimal(found)) == str(_decimal(text))
            case Form.FLOAT:
                return not isinstance(found, bool) and _float(found) == _float(text)
            case Form.FLOAT32:
                return struct.pack("<f", float(found)) == struct.pack("<f", float(text))
            case Form.BOOLEAN:
                return str(found).lower() in (("true", "t", "1", "b'\\x01'") if text in ("t", "1") else
                                              ("false", "f", "0", "b'\\x00'"))  # fmt: skip
            case Form.BYTES:
                return _bytes(found) == bytes.fromhex(text[2:])
            case Form.TIME:
                return _time(found) == _time(text)
            case Form.JSON:
                return _loaded(found) == _loaded(text)
            case Form.LIST:
                return _same_lists(text, found, element)
            case Form.TEXT:
                return str(found) == text
    except (ValueError, TypeError, InvalidOperation, json.JSONDecodeError):
        return False


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal)):
        return None
    number = Decimal(value)
    return number.normalize() if number.is_finite() and len(number.as_tuple().digits) <= 28 else number


def _float(value: Any) -> str:
    number = float(value)
    return "nan" if math.isnan(number) else repr(number)


def _bytes(value: Any) -> bytes | None:
    if isinstance(value, str) and value.startswith("\\x"):
        return bytes.fromhex(value[2:])
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None


def _time(value: Any) -> str | None:
    """A date or time as the text that the databases print, without zeros at the end of its fraction."""
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        seconds, fraction = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else ""
        value = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
    elif isinstance(value, datetime):
        value = value.replace(tzinfo=None).isoformat(" ")
    elif isinstance(value, (date, time)):
        value = value.isoformat()
    if not isinstance(value, str) or not re.search(r"\d[-:]\d", value):
        return None
    text = re.sub(r"(\+00(:00)?|Z)$", "", value.replace("T", " "))
    return text.rstrip("0").rstrip(".") if "." in text else text


def _loaded(value: Any) -> Any:
    loaded = json.loads(value, parse_float=Decimal) if isinstance(value, str) else value
    if isinstance(loaded, list):
        return [_loaded(one) if isinstance(one, (dict, list)) else one for one in loaded]
    return loaded


def _same_lists(text: str, found: Any, element: Form) -> bool:
    texts = elements_of(text)
    if isinstance(found, str):
        found = elements_of(found) if found.startswith("{") else json.loads(found, parse_float=Decimal)
    if not isinstance(found, (list, tuple)) or len(found) != len(texts):
        return False
    pairs = zip(texts, found, strict=True)
    return all(other is None if one is None else same(element, one, other) for one, other in pairs)


def elements_of(text: str) -> list[str | None]:
    """The elements of an array of PostgreSQL with one dimension."""
    found: list[str | None] = []
    for quoted, plain in re.findall(r'"((?:[^"\\]|\\.)*)"|([^,{}"]+)', text):
        found.append(None if plain == "NULL" else plain or re.sub(r"\\(.)", r"\1", quoted))
    return found


# -- lines -------------------------------------------------------------------------------------------------------------


def lines_of(types: Sequence[ValueType], results: Mapping[str, Mapping[str, list[str]]]) -> str:
    """The lines of a file. `results` has for `sink, form` and the column of a type the outcomes of its values."""
    lines = []
    for one in types:
        lines.append(f"{one.name.partition('_')[2] if one.name[0] == 'c' else one.name}: {one.ddl}")
        kept = [value for value in one.values if value.refused is None]
        for row, value in enumerate(kept):
            text = "(none)" if value.text is None else value.text
            text = text if len(text) <= _SHOWN else f"{text[:20]}... ({len(text)} characters)"
            lines.append(f"  {json.dumps(text, ensure_ascii=False) if value.text is not None else value.literal}")
            by_outcome: dict[str, list[str]] = {}
            for where, found in results.items():
                if one.name in found:
                    by_outcome.setdefault(found[one.name][row], []).append(where)
            lines += [f"    {result}  <- {_places(places)}" for result, places in by_outcome.items()]
        lines += [f"  ! {value.text}: {value.refused}".replace("\\", "") for value in one.values if value.refused]
    return "\n".join(lines) + "\n"


def _places(places: list[str]) -> str:
    """`sink, form` pairs by forms."""
    by_form: dict[str, list[str]] = {}
    for place in places:
        sink, _, form = place.partition(", ")
        by_form.setdefault(form, []).append(sink)
    return "; ".join(f"{form}: {' '.join(sinks)}" for form, sinks in by_form.items())
