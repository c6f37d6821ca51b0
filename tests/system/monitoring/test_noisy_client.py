"""Two clients write to a cluster of three brokers, and one of them keeps the brokers busy: each view names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from barnabas import Admin, Producer
from barnabas.cli.app import build_app
from barnabas.client.admin.clients import ClientView
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import wait_until

pytestmark = pytest.mark.system

NOISY, QUIET = "batch-job-7", "checkout"
BATCHES = 30


def test_the_noisy_client_is_found(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        with (
            Admin(bootstrap_servers=servers) as admin,
            Producer(bootstrap_servers=servers, client_id=NOISY, linger_ms=0) as noisy,
            Producer(bootstrap_servers=servers, client_id=QUIET) as quiet,
        ):
            admin.create_topic("orders", num_partitions=3, replication_factor=3)

            def write() -> None:
                for _ in range(BATCHES):
                    for partition in range(3):
                        noisy.send("orders", b"n" * 2_000, partition=partition)
                    noisy.flush()
                quiet.send("orders", b"q" * 100, partition=0)
                quiet.flush()

            def is_known() -> bool:
                write()
                names = {use.client_id for use in admin.describe_clients().clients}
                return {NOISY, QUIET} <= names

            wait_until(is_known, what="both clients are known")
            write()
            _check_clients(admin)
            _check_partitions(admin)
            _check_command(servers, write)


def _check_clients(admin: Admin) -> None:
    found = admin.describe_clients()
    assert found.failed == {}
    uses = {use.client_id: use for use in found.clients}
    noisy, quiet = uses[NOISY], uses[QUIET]
    assert noisy.bytes_in > 5 * quiet.bytes_in
    assert noisy.requests > 5 * quiet.requests
    assert noisy.records_in > 5 * quiet.records_in
    assert noisy.seconds > quiet.seconds
    [address] = admin.describe_clients(ClientView.ADDRESS).clients
    assert address.address == "127.0.0.1"
    assert address.requests >= noisy.requests * 0.5, "other clients, and the brokers, have the same address"
    [principal] = admin.describe_clients(ClientView.PRINCIPAL).clients
    assert principal.principal == "User:ANONYMOUS"


def _check_partitions(admin: Admin) -> None:
    """Every partition has another leader, and its own rate."""
    partitions = {
        use.partition for use in admin.describe_clients(ClientView.PARTITION).clients if use.topic == "orders"
    }
    assert partitions == {0, 1, 2}
    producers = {
        (use.client_id, use.partition): use
        for use in admin.describe_clients(ClientView.PARTITION_CLIENT).clients
        if use.topic == "orders" and use.records_in > 0
    }
    assert set(producers) == {(NOISY, 0), (NOISY, 1), (NOISY, 2), (QUIET, 0)}
    assert len({producers[NOISY, partition].producer_id for partition in range(3)}) == 1, "one producer writes to all"
    assert producers[NOISY, 0].producer_id != producers[QUIET, 0].producer_id
    assert producers[NOISY, 0].bytes_in > 5 * producers[QUIET, 0].bytes_in


def _check_command(servers: str, write: Callable[[], None]) -> None:
    def run(*words: str) -> list[str | None]:
        write()
        result = CliRunner().invoke(
            build_app(("clients",)), ["clients", "--json", "--bootstrap-server", servers, *words]
        )
        assert result.exit_code == 0, result.output
        return [row["client_id"] for row in json.loads(result.output)["clients"]]

    assert run("--sort", "in")[0] == NOISY
    assert run("--sort", "records")[0] == NOISY
    assert run("--by", "producer")[0] == NOISY
    assert run("--sort", "in", "--limit", "1") == [NOISY]
