"""`barnabas backup`, `restore` and `verify` as processes: kill -9 of a backup and of a broker under load; S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.blocking import Admin
from barnabas.client.blocking_producer import Producer
from barnabas.client.values import NewTopic
from barnabas.core.child_processes import start_child
from barnabas.core.ids import TopicPartition
from barnabas.testing import ClusterProcess, EmbeddedBroker
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until

pytestmark = pytest.mark.system
PARTITIONS = 6
VALUE = os.urandom(4000)


def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    return start_child(
        [sys.executable, "-m", "barnabas", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


def run(*arguments: str, code: int = 0, **environment: str) -> Any:
    """The JSON document of a command that ends with `code`."""
    process = start(*arguments, "--json", **environment)
    out, err = process.communicate(timeout=180)
    assert process.returncode == code, err.decode()
    return json.loads(out) if out else None


class Load:
    """Produces records to all partitions in a thread until `stop`."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        with Producer(bootstrap_servers=self._servers, enable_idempotence=True) as producer:
            while not self._stop.is_set():
                producer.send("orders", VALUE[:200], partition=self.sent % PARTITIONS)
                self.sent += 1
                if self.sent % 50 == 0:
                    producer.flush()


def test_a_backup_under_load_survives_kills(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with ClusterProcess(tmp_path / "cluster") as cluster:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("orders", PARTITIONS, 3)])
            with Producer(bootstrap_servers=servers) as producer:
                for number in range(6000):
                    producer.send("orders", VALUE, partition=number % PARTITIONS)
            with Load(servers) as load:
                wait_until(lambda: load.sent > 100, "the load runs")
                process = start("backup", "run", str(backup), "-b", servers, "--object-mib", "1", "--parallel", "1")
                wait_until(lambda: any(backup.glob("data/*/*/*.batches")), "the backup has written an object")
                process.kill()
                process.communicate()
                assert run("backup", "list", str(backup)) == [] or not list((backup / "runs").glob("*.json"))
                run("restore", str(backup), "-b", servers, code=1)
                process = start("backup", "run", str(backup), "-b", servers, "--json")
                cluster.node(2).kill()
                out, err = process.communicate(timeout=180)
                assert process.returncode == 0, err.decode()
                during = json.loads(out)
            cluster.node(2).start()
            with Admin(bootstrap_servers=servers) as other:
                other.alter_group_offsets("readers", {TopicPartition("orders", n): 1000 + n for n in range(PARTITIONS)})
            last = run("backup", "run", str(backup), "-b", servers)
            assert last["base"] == during["run"]
            assert last["size"] > during["size"] > 6000 * len(VALUE)
            assert run("verify", str(backup))["damage"] == []
            equal = run("verify", str(backup), "--cluster", "-b", servers)
        with BrokerProcess(tmp_path / "target" / "data") as target:
            report = run("restore", str(backup), "-b", target.bootstrap_servers)
            assert (report["method"], report["partitions"]) == ("link", PARTITIONS)
            restored = run("verify", str(backup), "--cluster", "-b", target.bootstrap_servers)
            assert restored == equal
            with Admin(bootstrap_servers=target.bootstrap_servers) as admin:
                offsets = admin.list_group_offsets("readers")
                assert {name.partition: getattr(found, "offset", None) for name, found in offsets.items()} == {
                    number: 1000 + number for number in range(PARTITIONS)
                }


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The environment of a client of an S3 server that has the bucket `backups`."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    import urllib.request

    request = urllib.request.Request(f"{endpoint}/backups", method="PUT")
    urllib.request.urlopen(request).close()
    yield {**keys, "AWS_ENDPOINT_URL": endpoint}
    server.stop()


def test_a_backup_in_s3(s3: dict[str, str]) -> None:
    location = "s3://backups/paris/daily"
    with EmbeddedBroker() as source, EmbeddedBroker() as target:
        with Admin(bootstrap_servers=source.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 2, 1)])
            with Producer(bootstrap_servers=source.bootstrap_servers) as producer:
                for number in range(3000):
                    producer.send("orders", VALUE, partition=number % 2)
        first = run("backup", "run", location, "-b", source.bootstrap_servers, "--object-mib", "1", **s3)
        second = run("backup", "run", location, "-b", source.bootstrap_servers, **s3)
        assert (second["base"], second["added"], first["size"]) == (first["run"], 0, second["size"])
        assert [one["run"] for one in run("backup", "list", location, **s3)] == [first["run"], second["run"]]
        checked = run("verify", location, **s3)
        assert (checked["runs"], checked["damage"], checked["leftovers"]) == (2, [], 0)
        assert checked["objects"] >= 10
        pruned = run("backup", "prune", location, "--keep", "1", "--yes", **s3)
        assert (pruned["runs"], pruned["objects"]) == ([first["run"]], 0)
        run("restore", location, "-b", target.bootstrap_servers, **s3)
        compared = run("verify", location, "--cluster", "-b", target.bootstrap_servers, **s3)
        assert [(one["end"], one["differs_at"], one["missing"]) for one in compared] == [(1500, None, 0)] * 2
        wrong = start("backup", "list", "s3://missing/x", **s3)
        assert b"object store failed" in wrong.communicate(timeout=120)[1]
