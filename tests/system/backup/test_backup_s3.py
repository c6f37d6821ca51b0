"""`barnabas backup`, `restore` and `verify` with an S3 server."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cli.app import main
from barnabas.client.blocking import Admin
from barnabas.client.blocking_producer import Producer
from barnabas.client.values import NewTopic
from barnabas.testing import EmbeddedBroker

pytestmark = pytest.mark.system
LOCATION = "s3://backups/paris/daily"
Command = Callable[..., Any]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an S3 server that has the bucket `backups`; the environment has keys for it."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/backups", method="PUT")).close()
    yield endpoint
    server.stop()


@pytest.fixture
def command(s3: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """`command("backup", "list", LOCATION)` is the JSON document that the command prints, or its error."""

    def run(*arguments: str, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["barnabas", *arguments, "--s3-endpoint", s3, "--json"])
        capsys.readouterr()
        found = 0
        try:
            main()
        except SystemExit as left:
            found = left.code if isinstance(left.code, int) else 0
        printed = capsys.readouterr()
        assert found == code, printed.err
        return printed.err if code else json.loads(printed.out)

    return run


def test_a_backup_in_s3(command: Command) -> None:
    with EmbeddedBroker() as source, EmbeddedBroker() as target:
        servers = ("-b", source.bootstrap_servers)
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2, 1)])
        with Producer(bootstrap_servers=source.bootstrap_servers) as producer:
            for number in range(2000):
                producer.send("orders", b"%d" % number * 500, partition=number % 2)
        first = command("backup", "run", LOCATION, *servers, "--object-mib", "1")
        second = command("backup", "run", LOCATION, *servers)
        assert (second["base"], second["added"], first["size"]) == (first["run"], 0, second["size"])
        assert [one["run"] for one in command("backup", "list", LOCATION)] == [first["run"], second["run"]]
        checked = command("verify", LOCATION)
        assert (checked["runs"], checked["damage"], checked["leftovers"]) == (2, [], 0)
        assert checked["objects"] >= 4
        pruned = command("backup", "prune", LOCATION, "--keep", "1", "--yes")
        assert (pruned["runs"], pruned["objects"]) == ([first["run"]], 0)
        report = command("restore", LOCATION, "-b", target.bootstrap_servers)
        assert (report["method"], report["sent"]) == ("link", second["size"])
        compared = command("verify", LOCATION, "--cluster", "-b", target.bootstrap_servers)
        assert [(one["end"], one["differs_at"], one["missing"]) for one in compared] == [(1000, None, 0)] * 2
        assert "cannot be restored into this cluster" in command("restore", LOCATION, *servers, code=1)
        assert "The object store failed" in command("backup", "list", "s3://missing/x", code=1)
        assert "has no complete run" in command("verify", "s3://backups/other", code=1)
