"""The commands of `barnabas`, run against a broker."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from tests.system.cli.conftest import Cli

VALUES = sorted(f"v{i}" for i in range(10))


def test_topic_is_created_described_altered_and_deleted(cli: Cli) -> None:
    name = f"life-{uuid.uuid4().hex[:8]}"
    assert cli("topics", "create", name, "-p", "3", "-c", "retention.ms=1000", "--dry-run").code == 0
    assert name not in cli("topics", "list").out
    created = cli("topics", "create", name, "-p", "3", "-c", "retention.ms=1000", "--json").json
    assert [(t["topic"], t["partitions"]) for t in created] == [(name, 3)]
    assert name in [t["topic"] for t in cli("topics", "list", "--json").json]
    again = cli("topics", "create", name)
    assert (again.code, "already exists" in again.err) == (1, True)
    assert cli("topics", "create", name, "--if-not-exists").code == 0
    assert cli("topics", "alter", name, "--partitions", "5").code == 0
    (described,) = cli("topics", "describe", name, "--json").json
    assert described["configs"] == {"retention.ms": "1000"}
    assert [(p["partition"], p["start"], p["end"]) for p in described["partitions"]] == [(i, 0, 0) for i in range(5)]
    unasked = cli("topics", "delete", name)
    assert (unasked.code, "give --yes" in unasked.err) == (2, True)
    assert cli("topics", "delete", name, "--yes").code == 0
    gone = cli("topics", "describe", name)
    assert (gone.code, "There is no topic" in gone.err) == (1, True)
    assert cli("topics", "delete", name, "--yes", "--if-exists").code == 0


def test_reading_to_the_end(cli: Cli, filled: str) -> None:
    read = cli("consume", filled, "--until-end")
    assert sorted(read.lines) == VALUES
    assert read.err.startswith("10 records, 30 B, ")
    assert cli("consume", filled, "--until-end", "--offset", "latest").lines == []


def test_reading_some(cli: Cli, filled: str) -> None:
    assert len(cli("consume", filled, "-B", "-n", "3").lines) == 3
    lasts = cli("consume", filled, "-e", "--offset", "-1", "--offsets", "--key", "--separator", "|").lines
    ends = {p["partition"]: p["end"] for p in cli("topics", "describe", filled, "--json").json[0]["partitions"]}
    assert sorted(line.split("|")[:2] for line in lasts) == [
        [f"Partition:{p}", f"Offset:{end - 1}"] for p, end in sorted(ends.items())
    ]
    one = cli("consume", filled, "-e", "-p", "0", "-o", "1", "--format", "{partition}/{offset}").lines
    assert one == [f"0/{offset}" for offset in range(1, ends[0])]
    recent = cli("consume", filled, "-e", "-o", "PT1H")
    assert sorted(recent.lines) == VALUES


def test_consume_stops_after_the_timeout(cli: Cli, filled: str) -> None:
    read = cli("consume", filled, "--timeout", "2", "--from-beginning")
    assert (read.code, sorted(read.lines)) == (0, VALUES)


def test_json_lines(cli: Cli, topic: str) -> None:
    cli("produce", topic, "--headers", "-k", "=", "--null", "NIL", stdin="h:1,h:2\tkey=wörld\nNIL\tNIL=NIL\n".encode())
    read = [json.loads(line) for line in cli("consume", topic, "-e", "--json").lines]
    assert sorted((r["key"] or "", r["value"], r["headers"]) for r in read) == [
        ("", None, []),
        ("key", "wörld", [["h", "1"], ["h", "2"]]),
    ]
    assert {r["topic"] for r in read} == {topic}


def test_producing_from_a_file(cli: Cli, topic: str, tmp_path: Path) -> None:
    source = tmp_path / "lines"
    source.write_bytes(b"one\r\n\ntwo")
    assert "3 records" in cli("produce", topic, "--file", str(source), "--compression", "gzip").err
    assert sorted(cli("consume", topic, "-e").lines) == ["", "one", "two"]
    assert cli("produce", topic, "--file", str(tmp_path / "none")).code == 2
    refused = cli("produce", topic, "-k", ":", stdin=b"no separator")
    assert (refused.code, "line 1: no key.separator ':'" in refused.err) == (2, True)


def test_group_continues_at_its_committed_offset(cli: Cli, filled: str) -> None:
    group = f"g-{filled}"
    first = cli("consume", filled, "-g", group, "-B", "-n", "4").lines
    described = cli("groups", "describe", group, "--json").json
    assert described["state"] == "Empty"
    assert sum(o["committed"] or 0 for o in described["offsets"]) == 4
    rest = cli("consume", filled, "-g", group, "-B", "--until-end").lines
    assert sorted(first + rest) == VALUES
    assert [o["lag"] for o in cli("groups", "describe", group, "--json").json["offsets"]] == [0, 0]
    assert group in [g["group"] for g in cli("groups", "list", "--json").json]


def test_moving_and_deleting_a_group(cli: Cli, filled: str) -> None:
    group = f"g-{filled}"
    cli("consume", filled, "-g", group, "-B", "--until-end")
    plan = cli("groups", "reset-offsets", group, "--topic", filled, "--to", "earliest", "--dry-run", "--json").json
    assert [row["to"] for row in plan] == [0, 0]
    assert [o["lag"] for o in cli("groups", "describe", group, "--json").json["offsets"]] == [0, 0]
    moved = cli("groups", "reset-offsets", group, "--topic", f"{filled}:1", "--to", "+1000", "--json").json
    ends = {o["partition"]: o["end"] for o in cli("groups", "describe", group, "--json").json["offsets"]}
    assert moved == [{"topic": filled, "partition": 1, "from": ends[1], "to": ends[1]}]
    cli("groups", "reset-offsets", group, "--to", "-1")
    assert [o["lag"] for o in cli("groups", "describe", group, "--json").json["offsets"]] == [1, 1]
    assert cli("groups", "delete-offsets", group, "--topic", f"{filled}:0").code == 0
    assert [o["partition"] for o in cli("groups", "describe", group, "--json").json["offsets"]] == [1]
    assert cli("groups", "delete", group, "--yes").code == 0
    assert cli("groups", "describe", group).code == 1
    wrong = cli("groups", "reset-offsets", group, "--to", "soon")
    assert (wrong.code, "'soon' is not a position" in wrong.err) == (2, True)


def test_configs(cli: Cli, topic: str) -> None:
    assert (
        cli("configs", "alter", "--topic", topic, "--set", "retention.ms=5", "--append", "cleanup.policy=compact").code
        == 0
    )
    shown = {e["name"]: e["value"] for e in cli("configs", "describe", "--topic", topic, "--json").json}
    assert shown == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert cli("configs", "alter", "--topic", topic, "--delete", "retention.ms").code == 0
    every = cli("configs", "describe", "--topic", topic, "--all", "--docs", "--json").json
    assert {e["name"]: e["value"] for e in every}["retention.ms"] == "604800000"
    assert all(e["documentation"] for e in every)
    assert cli("configs", "alter", "--topic", topic, "--set", "retention.ms=soon").code == 1
    assert cli("configs", "describe").code == 2


def test_logs(cli: Cli, filled: str, broker: EmbeddedBroker) -> None:
    ends = {r["partition"]: r["offset"] for r in cli("logs", "offsets", filled, "--json").json}
    assert sum(ends.values()) == 10
    assert cli("logs", "delete-records", f"{filled}:0", "--before", "1", "--yes").code == 0
    assert [r["offset"] for r in cli("logs", "offsets", filled, "--at", "earliest", "--json").json] == [1, 0]
    listed = cli("logs", "dirs", "--topic", filled, "--json").json
    assert sorted(r["partition"] for r in listed) == [f"{filled}-0", f"{filled}-1"]
    assert all(r["dir"] == broker.data_dir for r in listed)
    dumped = cli("logs", "dump", f"{broker.data_dir}/{filled}-1", "--values").out
    assert dumped.count("| offset: ") == ends[1]
    assert "payload: v" in dumped
    opened = cli("logs", "dump", f"{broker.data_dir}/__cluster_metadata-0", "--values").out
    assert f'"type":"TOPIC_RECORD","version":0,"data":{{"name":"{filled}"' in opened
    assert cli("logs", "dump", f"{broker.data_dir}/none.log").code == 2


def test_cluster(cli: Cli, filled: str) -> None:
    found = cli("cluster", "describe", "--json").json
    assert (found["under_replicated"], found["offline"]) == (0, 0)
    assert [b["id"] for b in found["brokers"]] == [found["controller"]]
    apis = {a["api"]: a["max"] for a in cli("cluster", "apis", "--json").json}
    assert apis["Produce"] >= 12


@pytest.mark.parametrize(
    "line",
    ["topics list", "groups list", "configs describe --topic {}", "logs dirs", "logs offsets {}", "cluster describe"],
)
def test_tables_for_people(cli: Cli, filled: str, line: str) -> None:
    shown = cli(*line.format(filled).split())
    assert (shown.code, bool(shown.out.strip())) == (0, True)


@pytest.mark.parametrize(
    ("line", "code", "reason"),
    [
        ("consume {} -p 9 -e", 1, "does not exist: "),
        ("consume nowhere -e", 1, "There is no topic 'nowhere'"),
        ("consume {} -g g -p 1", 2, "a group's coordinator assigns partitions"),
        ("consume {} -B -o 3", 2, "give one"),
        ("consume {} --json --key", 2, "exclude each other"),
        ("consume {} --format {{size}}", 2, "is not a field"),
        ("consume {} -e --isolation-level some", 2, "read_committed or read_uncommitted"),
        ("consume {} -e -X fetch.min.bytes=many", 1, "fetch.min.bytes"),
        ("topics list -b localhost:1 --command-config {quick}", 3, "none of bootstrap.servers localhost:1 answers"),
        ("topics list -b nonsense", 1, "'nonsense' is not host:port"),
    ],
)
def test_errors_print_one_line_and_set_the_exit_code(
    cli: Cli, topic: str, tmp_path: Path, line: str, code: int, reason: str
) -> None:
    quick = tmp_path / "quick.properties"
    quick.write_text("default.api.timeout.ms=500\nsocket.connection.setup.timeout.ms=500\n")
    failed = cli(*line.format(topic, quick=quick).split())
    assert failed.code == code, failed.err
    assert reason in failed.err
    assert failed.err.startswith("error: ")
    assert failed.err.count("\n") == 1


def test_a_cluster_that_cannot_be_reached(cli: Cli, tmp_path: Path) -> None:
    """One line that says so, in the time that a connection may take, not after a minute."""
    impatient = tmp_path / "client.properties"
    impatient.write_text("socket.connection.setup.timeout.ms=100\n")
    for command in (("topics", "list"), ("produce", "t"), ("consume", "t")):
        result = cli(*command, "-b", "127.0.0.1:1", "--command-config", str(impatient))
        assert result.code == 3
        assert result.err.count("\n") == 1
        assert "none of bootstrap.servers 127.0.0.1:1 answers" in result.err
