"""Command lines: help texts with examples, Kafka's tools under all their names, flags that are rejected with a
reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from typer import Context
from typer.main import get_command

from barnabas.cli.app import NOUNS, build_app
from barnabas.cli.kafka.arguments import Parser, split_list, split_pairs
from barnabas.cli.output import print_table
from barnabas.cli.serve.serve import build_parser

ROOT = Path(__file__).parents[3]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]


def commands() -> Iterator[tuple[str, str]]:
    root = get_command(build_app())
    for name, command in root.commands.items():  # type: ignore[attr-defined]  # a group
        for sub, leaf in getattr(command, "commands", {"": command}).items():
            if not leaf.hidden:  # an earlier name of a command
                yield f"{name} {sub}".strip(), leaf.help or ""


@pytest.mark.parametrize(("name", "text"), list(commands()))
def test_every_help_has_an_example(name: str, text: str) -> None:
    if name == "serve":  # an argparse parser of its own; see cli/serve.py
        assert "barnabas serve --data-dir ./data" in build_parser().format_help()
    else:
        assert f"barnabas {name}" in text.partition("Example: ")[2]


def test_help_lists_the_nouns_in_order() -> None:
    root = get_command(build_app())
    assert root.list_commands(Context(root)) == [*NOUNS, "version"]  # type: ignore[attr-defined]  # a group


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_every_kafka_tool_is_installed_under_both_names(script: str) -> None:
    module, _, function = SCRIPTS[script].partition(":")
    assert callable(getattr(import_module(module), function))
    if script.startswith("kafka-"):
        shell = ROOT / "bin" / f"{script}.sh"
        assert f"/.venv/bin/{script}" in shell.read_text()
        assert shell.stat().st_mode & 0o111


def run_tool(script: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    module, _, function = SCRIPTS[script].partition(":")
    monkeypatch.setattr("sys.argv", [script, *arguments])
    with pytest.raises(SystemExit) as left:
        getattr(import_module(module), function)()
    return int(left.value.code or 0)


@pytest.mark.parametrize("script", sorted(s for s in SCRIPTS if s.startswith("kafka-")))
def test_tools_print_help_and_reject_unknown_flags(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_tool(script, monkeypatch, "--help") == 0
    assert script in capsys.readouterr().out
    assert run_tool(script, monkeypatch, "--no-such-flag") == 1


B = ("--bootstrap-server", "localhost:1")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("kafka-configs --alter --entity-type clients", "--alter needs --entity-name or --entity-default"),
        ("kafka-configs --describe --entity-type wheels", "wheels is not supported by this broker"),
        ("kafka-client-metrics --alter --metrics a", "--alter needs --name or --generate-name"),
        ("kafka-client-metrics --delete", "--delete needs --name"),
        ("kafka-client-metrics --list --describe", "not allowed with argument"),
        ("kafka-cluster-mirrors --describe", "--describe needs --mirror"),
        ("kafka-cluster-mirrors --create --mirror m", "--create needs --mirror-config"),
        ("kafka-cluster-mirrors --list --failed", "--failed is only allowed with --describe"),
        ("kafka-cluster-mirrors --pause --mirror m --json", "--json is only allowed with --list and --describe"),
        ("kafka-configs --describe --user a --ip 127.0.0.1", "only the entity types users and clients"),
        ("kafka-configs --describe", "an entity is required"),
        ("kafka-topics --create", "--topic is required"),
        ("kafka-topics --alter --topic t", "--alter needs --partitions"),
        ("kafka-topics --alter --topic t --partitions 2 --config a=b", "kafka-configs --alter --add-config"),
        ("kafka-console-consumer --topic t --partition 0 --group g", "group and partition cannot be"),
        ("kafka-console-consumer --topic t --offset 3", "The partition is required when offset"),
        ("kafka-console-consumer --topic t --partition 0 --offset 3x", "The provided offset value '3x'"),
        ("kafka-console-consumer --topic t --formatter io.example.My", "Java classes cannot be loaded"),
        ("kafka-console-consumer --topic t --property print.kee=true", "'print.kee' is not a property"),
        ("kafka-console-producer --topic t --property parse.kee=true", "'parse.kee' is not a property"),
        ("kafka-console-producer --topic t --line-reader io.example.My", "Java classes cannot be loaded"),
        ("kafka-consumer-groups --describe", "--group or --all-groups is required"),
        ("kafka-consumer-groups --reset-offsets --group g --topic t", "needs one of --to-earliest"),
        ("kafka-features upgrade", "upgrade needs --feature"),
        ("kafka-features upgrade --feature kraft.version=one", "is a number"),
        ("kafka-features disable", "disable is not supported"),
        ("kafka-metadata-quorum add-controller", "needs --command-config"),
        ("kafka-metadata-quorum remove-controller -i 4", "needs --controller-id and --controller-directory-id"),
        ("kafka-metadata-quorum describe", "needs one of --status and --replication"),
        ("kafka-cluster unregister", "unregister needs --id"),
        ("kafka-producer-perf-test --topic t --num-records 1 --record-size 1 --print-metrics", "is not supported"),
        (
            "kafka-producer-perf-test --topic t --num-records 1 --record-size 1 --transaction-duration-ms 0 "
            "--command-property bootstrap.servers=localhost:9092",
            "should be greater than 0",
        ),
        ("kafka-console-share-consumer --topic t --reject --release", "not allowed with argument"),
        (
            "kafka-console-share-consumer --topic t --group a --consumer-property group.id=b",
            "Detected group ids: 'a', 'b'",
        ),
        ("kafka-e2e-latency --topic t --num-records 0 --producer-acks 1 --record-size 1", "must be a positive integer"),
        ("kafka-e2e-latency --topic t --num-records 1 --producer-acks 0 --record-size 1", "Please use '1' or 'all'"),
        ("kafka-share-consumer-perf-test --topic t --num-records 1 --threads 0", "must be at least 1"),
        (
            "kafka-verifiable-share-consumer --topic t --group-id g --ack-pattern accept",
            "'sync' or 'async', not 'auto'",
        ),
        (
            "kafka-verifiable-share-consumer --topic t --group-id g --acknowledgement-mode sync --ack-pattern renew",
            "at least one non-RENEW type",
        ),
        (
            "kafka-verifiable-share-consumer --topic t --group-id g --acknowledgement-mode sync --ack-pattern keep",
            "'keep' is not one of accept",
        ),
    ],
)
def test_unsupported_arguments_are_rejected_with_a_reason(
    line: str, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *arguments = line.split()
    assert run_tool(script, monkeypatch, *B, *arguments) == 1
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["producer", "consumer", "share-consumer"])
def test_a_verifiable_tool_without_arguments_prints_its_help(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _, function = SCRIPTS[f"kafka-verifiable-{kind}"].partition(":")
    monkeypatch.setattr("sys.argv", [f"kafka-verifiable-{kind}"])
    getattr(import_module(module), function)()
    assert capsys.readouterr().out.startswith(f"usage: kafka-verifiable-{kind} ")


def test_split_list_keeps_commas_inside_brackets() -> None:
    assert split_list("a=1, b=[x,y],c=") == ["a=1", "b=[x,y]", "c="]


def test_split_pairs_parses_name_value_arguments() -> None:
    parser = Parser("x", "y")
    assert split_pairs(["a=b=c", " d = e "], parser) == {"a": "b=c", "d": "e"}
    assert split_pairs(["key.separator= "], parser, strip=False) == {"key.separator": " "}


def test_kafka_storage_formats_a_directory_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from barnabas.cli.kafka.cluster.storage import main

    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'data'}\nnode.id=7\n")
    arguments = ["kafka-storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    assert capsys.readouterr().out.startswith(
        f"Formatting metadata directory {tmp_path / 'data'} with metadata.version"
    )
    with pytest.raises(SystemExit):
        main()
    assert "is already formatted" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*arguments, "--ignore-formatted"])
    main()
    monkeypatch.setattr("sys.argv", ["kafka-storage", "info", "-c", str(config)])
    main()
    shown = capsys.readouterr().out
    assert "Found metadata: {cluster.id=MkU3OEVBNTcwNTJENDM2Qg, directory.id=" in shown
    assert "node.id=7, version=1}" in shown


def test_ids_in_tables_have_no_thousands_separators(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["PRODUCER ID", "RECORDS>"], [(12_345, 12_345)])
    assert capsys.readouterr().out.split() == ["PRODUCER", "ID", "RECORDS", "12345", "12,345"]
