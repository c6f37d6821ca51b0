"""`barnabas users`, and the users of `kafka-configs` and `kafka-storage format --add-scram`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from barnabas.server.metadata.records.other import UserScramCredentialRecord
from barnabas.server.quorum.snapshot_files import bootstrap_records
from barnabas.server.storage.fs import OsFileSystem
from barnabas.testing import EmbeddedBroker
from tests.system.cli.conftest import Cli


def test_users_are_set_listed_and_deleted(cli: Cli) -> None:
    assert cli("users", "set", "ann", "--password-file", "-", stdin=b"ann-secret\n").code == 0
    assert cli("users", "set", "ben", "--password-file", "-", "--mechanism", "scram-sha-256", stdin=b"x").code == 0
    assert cli("users", "list", "--json").json == [
        {"user": "ann", "iterations": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}},
        {"user": "ben", "iterations": {"SCRAM-SHA-256": 4096}},
    ]
    assert cli("users", "delete", "ann", "--mechanism", "SCRAM-SHA-512", "--yes").code == 0
    assert cli("users", "delete", "ben", "--yes").code == 0
    assert cli("users", "list").lines[1].split() == ["ann", "SCRAM-SHA-256", "4096"]
    assert cli("users", "delete", "ann", "--yes").code == 0
    gone = cli("users", "delete", "ann", "--yes")
    assert (gone.code, "does not exist" in gone.err) == (1, True)


def test_a_password_is_never_an_argument_and_never_empty(cli: Cli, tmp_path: Path) -> None:
    assert "--password-file" in cli("users", "set", "ann").err
    empty = tmp_path / "empty"
    empty.touch()
    assert "is empty" in cli("users", "set", "ann", "--password-file", str(empty)).err
    assert "4096 to 16384" in cli("users", "set", "ann", "--iterations", "1", "--password-file", "-", stdin=b"x").err
    assert "SCRAM-SHA-256" in cli("users", "set", "ann", "--mechanism", "PLAIN", "--password-file", "-", stdin=b"x").err


def test_kafka_configs_for_users(cli: Cli) -> None:
    user = ("--entity-type", "users", "--entity-name", "eve")
    added = "SCRAM-SHA-256=[iterations=8192,password=x],SCRAM-SHA-512=[password=y]"
    assert cli("kafka-configs", "--alter", *user, "--add-config", added).lines == [
        "Completed updating config for user eve."
    ]
    known = "SCRAM-SHA-256=iterations=8192, SCRAM-SHA-512=iterations=4096"
    described = cli("kafka-configs", "--describe", "--user", "eve").lines
    assert described == [f"SCRAM credential configs for user-principal 'eve' are {known}"]
    assert cli("kafka-configs", "--alter", *user, "--delete-config", "SCRAM-SHA-256,SCRAM-SHA-512").code == 0
    assert cli("kafka-configs", "--describe", "--entity-type", "users").lines == []
    refused = cli("kafka-configs", "--alter", *user, "--add-config", "password=1")
    assert (refused.code, "or quotas without them" in refused.err) == (1, True)


def test_kafka_configs_for_quotas(cli: Cli) -> None:
    both = ("--entity-type", "users", "--entity-name", "ann", "--entity-type", "clients", "--entity-default")
    altered = cli("kafka-configs", "--alter", *both, "--add-config", "producer_byte_rate=1024,request_percentage=0.5")
    assert altered.lines == [
        "Completed updating config for user ann.",
        "Completed updating default config for clients in the cluster.",
    ]
    assert cli("kafka-configs", "--alter", "--user-defaults", "--add-config", "consumer_byte_rate=7").code == 0
    assert cli("kafka-configs", "--describe", *both).lines == [
        "Quota configs for user-principal 'ann', the default client-id are producer_byte_rate=1024.0, "
        "request_percentage=0.5"
    ]
    assert cli("kafka-configs", "--describe", "--entity-type", "users").lines == [
        "Quota configs for the default user-principal are consumer_byte_rate=7.0"
    ]
    unset = cli("kafka-configs", "--alter", *both, "--delete-config", "consumer_byte_rate")
    assert (unset.code, "Invalid config(s): consumer_byte_rate" in unset.err) == (1, True)
    assert cli("kafka-configs", "--alter", *both, "--delete-config", "producer_byte_rate,request_percentage").code == 0
    assert cli("kafka-configs", "--alter", "--user-defaults", "--delete-config", "consumer_byte_rate").code == 0
    assert cli("quotas", "list", "--json").json == []


def test_the_first_users_of_a_formatted_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    properties, data = tmp_path / "server.properties", tmp_path / "data"
    properties.write_text(f"log.dirs={data}\nnode.id=1\n")
    command = ["kafka-storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(properties)]
    users = ["--add-scram", "SCRAM-SHA-256=[name=admin,password=admin-secret]"]
    monkeypatch.setattr(sys, "argv", [*command, "--add-scram", "SCRAM-SHA-256=[name=admin]"])
    with pytest.raises(SystemExit):
        import_module("barnabas.cli.kafka.cluster.storage").main()
    assert not data.exists()
    monkeypatch.setattr(sys, "argv", [*command, *users])
    import_module("barnabas.cli.kafka.cluster.storage").main()
    assert "admin-secret" not in capsys.readouterr().out
    records = bootstrap_records(OsFileSystem(), str(data), str(data / "__cluster_metadata-0"))
    (found,) = [record for record in records if isinstance(record, UserScramCredentialRecord)]
    assert (found.name, found.mechanism, found.iterations) == ("admin", 1, 4096)
    with EmbeddedBroker({"node.id": "1"}, data_dir=str(data)) as broker:
        assert broker.node is not None
        assert broker.node.parts is not None
        assert broker.node.parts.image.scram.get(1, "admin") is not None
