"""`barnabas serve --processes N` with real processes: one is killed, the supervisor is killed, a start fails."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, Producer
from barnabas.client.values import ConfigResource, NewTopic
from barnabas.core.child_processes import start_child
from tests.progress import STANDSTILL_S, described, wait_until

SERVE = [sys.executable, "-m", "barnabas", "serve"]
ANY_PORT = ["--listener", "PLAINTEXT://127.0.0.1:0"]

pytestmark = pytest.mark.system


class Host:
    """The running command. The constructor returns when all processes are ready."""

    def __init__(self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log_path = folder / "log.txt"
        with self.log_path.open("w") as log:
            self.process = start_child(
                [*SERVE, *ANY_PORT, "--data-dir", str(folder / "data"), *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "BARNABAS_DATA_DIR": str(folder / "elsewhere"), **environment},
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        addresses = re.findall(r"PLAINTEXT://([\d.:]+)", self.ready)
        self.address = ",".join(addresses)
        if not addresses:
            pytest.fail(self.log)

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def children(self) -> list[int]:
        return children_of(self.process.pid)


def children_of(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listing.stdout.split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def host(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Host]:
    running = Host(folder, arguments, environment or {})
    pids = running.children()
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            code = running.process.wait(STANDSTILL_S)
            assert code == 0, running.log
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)


def write_and_read(address: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=address, acks="all") as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)
    with Consumer(bootstrap_servers=address, group_id=os.urandom(4).hex(), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert sum(1 for _ in islice(consumer, count)) == count


def test_killed_process_starts_again_and_its_data_are_there(tmp_path: Path) -> None:
    with host(tmp_path, "--processes", "3", "--log-json", "--log-level", "info") as running:
        assert "nodes=1,2,3" in running.ready
        assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["node-1", "node-2", "node-3"]
        with Admin(bootstrap_servers=running.address) as admin:
            admin.create_topics([NewTopic("t", 6, 1)])
            leaders = {partition.leader for partition in described(admin, "t").partitions}
        assert leaders == {1, 2, 3}, "the partitions are spread over the processes"
        write_and_read(running.address, "t", 600)
        before = set(running.children())
        os.kill(max(before), signal.SIGKILL)
        wait_until(lambda: "is ready again" in running.log, "node 3 is ready", progress=lambda: len(running.log))
        assert len(set(running.children()) - before) == 1
        write_and_read(running.address, "t", 600)
        lines = [json.loads(line) for line in running.log.splitlines() if line.startswith("{")]
        servers = {line["server"] for line in lines if line["logger"] != "barnabas.cli"}  # the supervisor's own lines
        assert servers == {1, 2, 3}, "one log names the process of each line"
    assert not (tmp_path / "elsewhere").exists()

    refused = subprocess.run(
        [*SERVE, *ANY_PORT, "--data-dir", str(tmp_path / "data"), "--processes", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 2
    assert "node-3: this data belongs to processes that would not be started" in refused.stderr


def test_settings_of_the_environment_reach_every_process(tmp_path: Path) -> None:
    environment = {
        "KAFKA_NUM_PARTITIONS": "5",
        "KAFKA_LOG_RETENTION_HOURS": "7",
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    }
    with host(tmp_path, "--processes", "2", "--env", environment=environment) as running:
        assert "nodes=1,2" in running.ready
        brokers = [ConfigResource.broker(1), ConfigResource.broker(2)]
        with Admin(bootstrap_servers=running.address) as admin:
            assert admin.describe_cluster().cluster_id == environment["CLUSTER_ID"]
            found = admin.describe_configs(brokers, names=["num.partitions", "log.retention.hours"])
            values = [{name: entry.value for name, entry in found[one].items()} for one in brokers]  # type: ignore[union-attr]
            assert values == [{"num.partitions": "5", "log.retention.hours": "7"}] * 2
            admin.create_topics([NewTopic("t")])
            assert len(described(admin, "t").partitions) == 5
        write_and_read(running.address, "t", 20)


def test_processes_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with host(tmp_path, "--processes", "2") as running:
        pids = running.children()
        running.process.kill()
        running.process.wait()
        wait_until(lambda: not any(map(is_alive, pids)), "all processes have ended")


def test_port_in_use_stops_every_process_and_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
        done = subprocess.run(
            [*SERVE, "-c", listeners, "--processes", "2", "--data-dir", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            check=False,
            timeout=STANDSTILL_S,
        )
    assert done.returncode == 1
    assert "the port is in use" in done.stderr
    assert re.search("^node [12] exited with code 1$", done.stderr, re.MULTILINE), (
        "whichever tried first ends the other"
    )


def test_data_of_a_single_broker_is_not_mixed_with_that_of_processes(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\n")
    done = subprocess.run(
        [*SERVE, *ANY_PORT, "--data-dir", str(root), "--processes", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "without --processes" in done.stderr
