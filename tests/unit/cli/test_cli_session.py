"""The addresses of the brokers: those of the command line precede those of a file with client settings."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from barnabas.cli.kafka.arguments import client_settings
from barnabas.cli.session import DEFAULT_BOOTSTRAP, with_bootstrap

FILE = {"bootstrap.servers": "file:9092", "acks": "1"}


def test_addresses_of_the_command_line_precede_those_of_the_file() -> None:
    assert with_bootstrap("given:9092", FILE) == {"bootstrap.servers": "given:9092", "acks": "1"}
    assert with_bootstrap(DEFAULT_BOOTSTRAP, FILE) == FILE
    assert with_bootstrap("127.0.0.1:9092", FILE) == {"bootstrap.servers": "127.0.0.1:9092", "acks": "1"}


def test_kafkas_tools_never_use_the_addresses_of_the_file(tmp_path: Path) -> None:
    """Their --bootstrap-server is obligatory, and may be the default address of our own commands."""
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:9092\nacks=1\n")
    assert client_settings(Namespace(command_config=str(path))) == {"acks": "1"}
    assert client_settings(Namespace(command_config=None)) == {}
