"""`barnabas backup`, `restore` and `verify` as processes: kill -9 of a backup and of a broker under load.

The short forms are in `test_backup_restore.py` and `test_backup_s3.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.blocking import Admin
from barnabas.client.blocking_producer import Producer
from barnabas.client.values import NewTopic
from barnabas.core.child_processes import start_child
from barnabas.core.ids import TopicPartition
from barnabas.testing import ClusterProcess
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until

pytestmark = [pytest.mark.system, pytest.mark.slow]
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
