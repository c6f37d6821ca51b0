"""`barnabas schemas`, and `produce` and `consume` with schemas."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.app import main
from barnabas.testing.embedded import EmbeddedBroker
from tests.system.registry.conftest import RunningRegistry

pytestmark = pytest.mark.system

Run = Callable[..., tuple[int, str, str]]
AVRO_1 = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
AVRO_2 = {**AVRO_1, "fields": [*AVRO_1["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
AVRO_BAD = {**AVRO_1, "fields": [{"name": "id", "type": "string"}]}
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; repeated string tags = 2; }'
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    with EmbeddedBroker() as broker, RunningRegistry(broker.bootstrap_servers) as registry:
        yield broker.bootstrap_servers, registry.url


@pytest.fixture
def run(
    servers: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """`run("schemas", "list")`, in a context that has the brokers and the registry: exit code, stdout, stderr."""
    monkeypatch.setenv("BARNABAS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)

    def command(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["barnabas", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        return code, *capsys.readouterr()

    command("context", "set", "test", "-b", servers[0], "--registry", servers[1])
    return command


def write(folder: Path, name: str, schema: Any) -> str:
    path = folder / name
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(path)


def test_the_life_of_a_subject(run: Run, tmp_path: Path) -> None:
    first, second = write(tmp_path, "1.avsc", AVRO_1), write(tmp_path, "2.avsc", AVRO_2)
    bad = write(tmp_path, "bad.avsc", AVRO_BAD)
    assert run("schemas", "check", "life-value", first)[0] == 0, "a first version is compatible"
    code, out, _ = run("schemas", "register", "life-value", first, "--json")
    assert (code, json.loads(out)["version"]) == (0, 1)
    assert run("schemas", "register", "life-value", second, "--dry-run")[0] == 0
    assert run("schemas", "register", "life-value", second)[0] == 0
    code, out, err = run("schemas", "check", "life-value", bad)
    assert code == 1
    assert out
    assert "not compatible" in err
    assert run("schemas", "register", "life-value", bad)[0] == 1
    code, out, err = run("schemas", "show", "life-value")
    assert json.loads(out) == AVRO_2
    assert "version 2" in err
    _, out, _ = run("schemas", "diff", "life-value")
    assert "--- life-value version 1\n+++ life-value version 2\n" in out
    assert run("schemas", "compatibility", "life-value", "--set", "none")[0] == 0
    assert json.loads(run("schemas", "compatibility", "life-value", "--json")[1])["compatibility"] == "NONE"
    assert run("schemas", "compatibility", "life-value", "--inherit")[0] == 0
    assert run("schemas", "delete", "life-value", "--version", "1", "--yes")[0] == 0
    rows = json.loads(run("schemas", "list", "--prefix", "life", "--json")[1])
    assert [(row["subject"], row["versions"], row["type"]) for row in rows] == [("life-value", [2], "AVRO")]
    assert run("schemas", "delete", "life-value", "--yes")[0] == 0
    assert run("schemas", "list", "--prefix", "life", "--json")[1] == "[]\n"


@pytest.mark.parametrize(
    ("name", "schema", "line", "document"),
    [
        ("avro.avsc", AVRO_2, '{"id": 7, "note": "n"}', {"id": 7, "note": "n"}),
        ("proto.proto", PROTO, '{"id": 7, "tags": ["a"]}', {"id": "7", "tags": ["a"]}),
        ("json.json", JSON_SCHEMA, '{"id": 7}', {"id": 7}),
    ],
)
def test_records_with_schemas(run: Run, tmp_path: Path, name: str, schema: Any, line: str, document: Any) -> None:
    topic = f"t-{name}"
    code, _, err = run("produce", topic, "--encode", stdin=line + "\n")
    assert code == 1
    assert "barnabas schemas register" in err
    assert run("topics", "create", topic)[0] == 0
    file = write(tmp_path, name, schema)
    arguments = ["--type", "JSON"] if name == "json.json" else []
    assert run("schemas", "register", f"{topic}-value", file, *arguments)[0] == 0
    assert run("schemas", "register", f"{topic}-key", write(tmp_path, "key.avsc", '"string"'))[0] == 0
    code, _, err = run("produce", topic, "--encode", "--encode-key", "-k", "|", stdin=f'"k"|{line}\n')
    assert (code, err.startswith("1 record")) == (0, True), err
    assert run("produce", topic, stdin="plain\n")[0] == 0
    code, out, err = run("consume", topic, "--until-end", "--decode", "--json")
    rows = [json.loads(text) for text in out.splitlines()]
    assert [(row["key"], row["value"]) for row in rows] == [("k", document), (None, "plain")], err
    _, out, _ = run("consume", topic, "--until-end", "--decode", "--key", "-n", "1")
    key, _, value = out.partition("\t")
    assert (key, json.loads(value)) == ('"k"', document)
    code, _, err = run("produce", topic, "--encode", stdin='{"id": "x"}\n')
    assert code == 2
    assert err.startswith("error: line 1: ")


def test_what_cannot_be_decoded_stays_as_it_is(run: Run) -> None:
    assert run("topics", "create", "odd")[0] == 0
    assert run("produce", "odd", stdin="\0\0\0\x7f\x7fab\n\0\0\0\x7f\x7fcd\n")[0] == 0
    code, out, err = run("consume", "odd", "--until-end", "--decode")
    assert (code, out) == (0, "\0\0\0\x7f\x7fab\n\0\0\0\x7f\x7fcd\n")
    assert "the value of odd-0@0 cannot be decoded" in err
    assert "2 keys and values could not be decoded" in err


def test_a_registry_that_does_not_answer(run: Run) -> None:
    code, _, err = run("schemas", "list", "--registry", "http://127.0.0.1:1")
    assert code == 3
    assert err.startswith("error: ")
