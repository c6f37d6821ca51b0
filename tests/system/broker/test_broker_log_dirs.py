"""Replicas move between two log directories of a broker process under load; the broker is killed during a move."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barnabas.client import Admin, Consumer, Producer
from barnabas.client.values import TopicPartitionReplica
from barnabas.testing.process import BrokerProcess

REASSIGN = "from barnabas.cli.kafka.cluster.reassign_partitions import main; main()"


class TwoDirectories(BrokerProcess):
    """The two log directories of the broker: its data directory and `second`."""

    def command(self) -> list[str]:
        own = str(self.data_dir)
        return [f"{own},{self.data_dir.with_name('second')}" if word == own else word for word in super().command()]


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.system
def test_replica_move_under_load_survives_a_kill(tmp_path: Path) -> None:
    first, second = str(tmp_path / "data"), str(tmp_path / "second")
    broker = TwoDirectories(tmp_path / "data", settings=("node.id=1",))
    with broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("t", num_partitions=1)
            replica = TopicPartitionReplica("t", 0, 1)
            home = admin.describe_replica_log_dirs([replica])[replica].current
            other = second if home == first else first
            assert home in (first, second)

            over = threading.Event()
            sent: list[bytes] = []

            def write() -> None:
                with Producer(bootstrap_servers=servers, enable_idempotence=True) as producer:
                    while not over.is_set() or len(sent) < 20_000:
                        batch = [b"%d " % n + bytes(200) for n in range(len(sent), len(sent) + 500)]
                        futures = [producer.send("t", value) for value in batch]
                        producer.flush()
                        for future in futures:
                            future.result(30)
                        sent.extend(batch)

            writer = threading.Thread(target=write)
            writer.start()
            try:
                for target in (other, home, other):
                    run(
                        "-m", "barnabas", "logs", "move", "t:0", "--to", target, "--wait", "--bootstrap-server", servers
                    )
                    assert admin.describe_replica_log_dirs([replica])[replica].current == target
            finally:
                over.set()
                writer.join(120)
            broker.kill()
        broker.start()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.describe_replica_log_dirs([replica])[replica].current == other
            assert (tmp_path / Path(other).name / "t-0").is_dir()
            assert not (tmp_path / Path(home).name / "t-0").exists()
            found: list[bytes] = []
            with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
                from barnabas.core.ids import TopicPartition

                consumer.assign([TopicPartition("t", 0)])
                consumer.seek_to_beginning()
                while len(found) < len(sent):
                    records = consumer.poll(10_000)
                    assert records, f"{len(found)} of {len(sent)} records came"
                    found += [record.value for record in records]
            assert found == sent

            plan = tmp_path / "plan.json"
            row = {"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [home]}
            plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
            asked = (
                "-c",
                REASSIGN,
                "--bootstrap-server",
                broker.bootstrap_servers,
                "--reassignment-json-file",
                str(plan),
            )
            begun = run(*asked, "--execute", "--replica-alter-log-dirs-throttle", "1000000000")
            assert f"Successfully started moving log directory to {home} for replica t-0 with broker 1" in begun
            assert f'"replicas":[1],"log_dirs":["{other}"]' in begun
            assert "The replica-alter-dir throttle limit was set to 1000000000 B/s" in begun
            while "still in progress" in (seen := run(*asked, "--verify")):
                pass
            assert "Reassignment of replica t-0-1 completed successfully." in seen
            run("-m", "barnabas", "logs", "dirs", "--bootstrap-server", broker.bootstrap_servers)
