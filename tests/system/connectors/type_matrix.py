"""What becomes of the extreme values of each type in each sink: written, read back, compared, and shown as lines.

    =            the sink has the value
    null         the value has no form, and is null
    a text       the form in which the sink has it, in quotes if it is a text
    ! a text     the query stops; the beginning of the message

A sink gets the values in three forms: rows (typed columns), events with schemas, and events without them. All values of
a type are written at once; if that fails, one by one. A topic is read as other programs would: JSON by a JSON parser,
Avro by the schema that the registry has. Events in Avro are for topics only: a test shows that sinks read the same from
them as from events with schemas.
"""

from __future__ import annotations

import io
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
import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from deltalake import DeltaTable

from barnabas.core.errors import BarnabasError
from barnabas.spark.connectors.files.opening import file_plan
from barnabas.spark.connectors.lake.opening import delta_plan, iceberg_plan
from barnabas.spark.connectors.sinking.writer import SinkPlan
from barnabas.spark.connectors.sql.sinks import opening
from barnabas.spark.options import QueryMode
from barnabas.spark.records.decoding import PartDecoder
from barnabas.spark.records.encoding import encode_records
from barnabas.spark.records.inference import arrow_type_of
from barnabas.spark.records.registries import find_schema, registry_client
from barnabas.spark.records.types import spark_arrow
from barnabas.spark.sink.options import parse_sink_options
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
REGISTRY_URL = "http://registry.test:8081"
AVRO = {
    f"{part}.converter{name}": text
    for part in ("key", "value")
    for name, text in (("", "AvroConverter"), (".schema.registry.url", REGISTRY_URL))
}
"""The options with which a source sends events in Avro."""
_JSON_FORMS = ("events", "events without schemas")


@dataclass(frozen=True)
class MatrixSink:
    """A sink of values in some forms. `found` writes the column of a type from a batch in a form to a new table or
    topic, and returns what it has then, by id.
    """

    name: str
    found: Callable[[str, ValueType, Any, str], Found]
    forms: tuple[str, ...] = tuple(FORMS)


def table_sink(
    name: str,
    plan: Callable[[str, Mapping[str, str]], SinkPlan],
    read: Callable[[str, str], Found],
    *,
    merges: bool = True,
) -> MatrixSink:
    """A sink of tables: the plan that writes a new one, with options, and what the column of a table has by id."""

    def found(form: str, one: ValueType, batch: Any, table: str) -> Found:
        options = dict(FORMS[form])
        if form == "rows":
            batch = batch.select(["id", one.name])
        else:
            options["fields.include"] = one.name
            options |= {"transforms": "flat,some", "transforms.some.type": "ReplaceField$Value"}
            options["transforms.some.include"] = f"id,{one.name}"
        if merges:
            options["insert.mode"] = "upsert"
        else:
            options = {key: text for key, text in options.items() if not key.startswith(("pk.", "fields."))}
        write(plan(table, options), 0, batch, query=str(uuid4()))
        # MariaDB and MySQL print a FLOAT with six digits.
        is_short = name in ("mariadb", "mysql") and one.form is Form.FLOAT32 and form != "events without schemas"
        return read(table, f"{one.name} + 0e0" if is_short else one.name)

    return MatrixSink(name, found)


# -- sinks -------------------------------------------------------------------------------------------------------------


def sql_sink(name: str, database: Any, column: str) -> MatrixSink:
    """A running database (`sql_databases.py`). `column` is how a statement reads a column."""

    def plan(table: str, options: Mapping[str, str]) -> SinkPlan:
        given = {**options, "dbtable": table, "auto.create": "true"}
        made: SinkPlan = database.plan(**{key.replace(".", "_"): text for key, text in given.items()})
        return made

    def read(table: str, value: str) -> Found:
        return dict(database.rows(f"SELECT id, {column.format(value)} FROM {table}"))

    return table_sink(name, plan, read)


def file_sinks(folder: Path) -> Iterator[MatrixSink]:
    """SQLite, DuckDB, Delta, Iceberg, and files of each format in a directory."""

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

    yield table_sink("sqlite", sqlite_plan, sqlite_read)
    yield table_sink("duckdb", duckdb_plan, duckdb_read)
    yield table_sink(
        "delta",
        lambda table, options: delta_plan({**options, "path": f"{folder}/{table}"}),
        lambda table, value: _of_arrow(DeltaTable(f"{folder}/{table}").to_pyarrow_table(), value),
    )
    yield table_sink("iceberg", iceberg, iceberg_read)
    for kind, suffix in (("parquet", "parquet"), ("csv", "csv"), ("json", "json"), ("avro", "avro")):
        yield _files(folder, kind, suffix)


def _files(folder: Path, kind: str, suffix: str) -> MatrixSink:
    """Files of one format, named `files:` and the format if the format is one of records, too."""

    def plan(table: str, options: Mapping[str, str]) -> SinkPlan:
        return file_plan({**options, "path": f"{folder}/{kind}_{table}", "file.format": kind})

    def read(table: str, value: str) -> Found:
        found: dict[int, Any] = {}
        for path in sorted(Path(f"{folder}/{kind}_{table}").glob(f"*.{suffix}")):
            found |= _FILE_READERS[kind](path, value)
        return found

    return table_sink(kind if kind == "parquet" else f"files:{kind}", plan, read, merges=False)


def _read_csv(path: Path, value: str) -> Found:
    """The texts of a column; None where there is nothing, not even quotes."""
    convert = pyarrow.csv.ConvertOptions(
        column_types={"id": pa.int64(), value: pa.binary()}, strings_can_be_null=True, quoted_strings_can_be_null=False,
        null_values=[""],
    )  # fmt: skip
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    found = _of_arrow(pyarrow.csv.read_csv(path, convert_options=convert, parse_options=parse), value)
    return {key: None if text is None else _decoded(text) for key, text in found.items()}


def _decoded(text: bytes) -> Any:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text


def _read_json(path: Path, value: str) -> Found:
    rows = [json.loads(line, parse_float=Decimal) for line in path.read_bytes().splitlines()]
    return {row["id"]: row.get(value) for row in rows}


def _read_avro(path: Path, value: str) -> Found:
    with path.open("rb") as file:
        return {row["id"]: row[value] for row in fastavro.reader(file)}


_FILE_READERS: Mapping[str, Callable[[Path, str], Found]] = {
    "parquet": lambda path, value: _of_arrow(pq.read_table(path), value),
    "csv": _read_csv,
    "json": _read_json,
    "avro": _read_avro,
}


# -- topics ------------------------------------------------------------------------------------------------------------


def topic_sinks() -> Iterator[MatrixSink]:
    """Topics: of rows with valueFormat=json and avro, and of events as the source makes them."""
    yield MatrixSink("topic:json", _rows_in_json, ("rows",))
    yield MatrixSink("topic:avro", _rows_in_avro, ("rows",))
    yield MatrixSink("topic", _event_in_json, _JSON_FORMS)
    yield MatrixSink("topic", _event_in_avro, ("events in avro",))


def _encoded(kind: str, one: ValueType, batch: Any, topic: str) -> tuple[Any, Any]:
    """The values of the records of a topic with a column of rows, and the options of their formats."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": topic, "valueFormat": kind}
    if kind == "avro":
        options["schema.registry.url"] = REGISTRY_URL
    formats = parse_sink_options(options, QueryMode.BATCH).formats
    kept = batch.select(["id", one.name])
    rows = pa.table({"value": pa.StructArray.from_arrays(kept.columns, fields=list(kept.schema))})
    return encode_records(rows, formats, topic).column("value").combine_chunks(), formats


def _rows_in_json(form: str, one: ValueType, batch: Any, table: str) -> Found:
    values, _ = _encoded("json", one, batch, table)
    rows = [json.loads(value, parse_float=Decimal) for value in values.to_pylist()]
    return {row["id"]: row.get(one.name) for row in rows}


def _rows_in_avro(form: str, one: ValueType, batch: Any, table: str) -> Found:
    """As a query of Spark reads them with valueFormat=avro."""
    values, formats = _encoded("avro", one, batch, table)
    pinned = find_schema(formats.value, formats.registry, (table,))
    decoder = PartDecoder(formats.value, formats, pinned, spark_arrow(arrow_type_of(formats.value, formats, pinned)))
    rows, failures = decoder.decode(values, table)
    assert not failures, failures
    return {row["id"]: row[one.name] for row in rows.to_pylist(maps_as_pydicts="strict")}


def _event_in_json(form: str, one: ValueType, batch: Any, table: str) -> Found:
    events = [json.loads(value, parse_float=Decimal) for value in batch.column("value").to_pylist()]
    return {row["id"]: row[one.name] for row in (event.get("payload", event)["after"] for event in events)}


def _event_in_avro(form: str, one: ValueType, batch: Any, table: str) -> Found:
    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "valueFormat": "avro", "schema.registry.url": REGISTRY_URL}
    access = parse_sink_options(options, QueryMode.BATCH).formats.registry
    assert access is not None
    found = {}
    for value in batch.column("value").to_pylist():
        schema = json.loads(registry_client(access).schema(int.from_bytes(value[1:5])).text)
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        found[event["after"]["id"]] = event["after"][one.name]
    return found


def _of_arrow(table: Any, value: str) -> Found:
    return dict(zip(table["id"].to_pylist(), table[value].to_pylist(maps_as_pydicts="strict"), strict=True))


# -- outcomes ----------------------------------------------------------------------------------------------------------


def outcomes(sink: MatrixSink, form: str, one: ValueType, batch: Any, table: str) -> list[str]:
    """What becomes of each value of a type that the source reads. `batch` has the rows or events of all columns."""
    values = [value for value in one.values if value.refused is None]
    try:
        found = sink.found(form, one, batch, table)
        return [outcome(one, value, found[row + 1]) for row, value in enumerate(values)]
    except BarnabasError:
        pass
    result = []
    for row, value in enumerate(values):
        try:
            found = sink.found(form, one, batch.slice(row, 1), f"{table}_{row}")
            result.append(outcome(one, value, found[row + 1]))
        except BarnabasError as error:
            text = re.sub(r"(c_|a_)[a-z0-9_]+_\d+\b|r\d+_[a-z0-9_]+|s\d+\.", "t", str(error)).replace("\n", " ")
            result.append(f"! {text[:_MESSAGE]}")
    return result


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


def without_sink(lines: str, name: str) -> str:
    """The lines of a file without one sink, which must be the last one in each list of sinks."""
    kept = []
    for line in lines.splitlines():
        outcome, arrow, places = line.rpartition("  <- ")
        if line.startswith("    ") and arrow:
            forms = [form.removesuffix(f" {name}") for form in places.split("; ")]
            forms = [form for form in forms if not form.endswith(":")]
            if not forms:
                continue
            line = f"{outcome}{arrow}{'; '.join(forms)}"
        kept.append(line)
    return "\n".join(kept) + "\n"


def _places(places: list[str]) -> str:
    """`sink, form` pairs by forms."""
    by_form: dict[str, list[str]] = {}
    for place in places:
        sink, _, form = place.partition(", ")
        by_form.setdefault(form, []).append(sink)
    return "; ".join(f"{form}: {' '.join(sinks)}" for form, sinks in by_form.items())
