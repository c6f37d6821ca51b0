"""Spark's own `spark-pipelines` runs the same files as `barnabas pipelines`, with the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas import Consumer, Producer, TopicPartition
from barnabas.spark.environment import prepare_environment
from barnabas.spark.pipelines.template import write_project
from barnabas.testing.process import BrokerProcess

pytestmark = pytest.mark.interop


def produce(servers: str, topic: str, ids: range) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in ids:
            producer.send(topic, json.dumps({"id": number, "customer": "ada", "amount": 100.0}).encode())
        producer.flush()


def consume(servers: str, topic: str) -> list[int]:
    tp = TopicPartition(topic, 0)
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([tp])
        end, found = consumer.end_offsets([tp])[tp], []
        while consumer.position(tp) < end:
            found += [json.loads(record.value)["id"] for record in consumer.poll(1_000)]
    return sorted(found)


def run(command: list[str], project: Path) -> None:
    done = subprocess.run(command, cwd=project, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-8_000:]


def test_the_same_files_run_with_both_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a copy of the project: Spark's command forgets the tables of the default catalog when it ends."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    prepare_environment()
    commands = {
        "ours": [sys.executable, "-m", "barnabas", "pipelines", "run", "--once"],
        "theirs": [str(Path(sys.executable).with_name("spark-pipelines")), "run"],
    }
    with BrokerProcess(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        for name, command in commands.items():
            project = tmp_path / name / "shop"
            write_project(project, f"shop-{name}", servers)
            produce(servers, f"shop-{name}-orders", range(10))
            run(command, project)
            assert consume(servers, f"shop-{name}-large-orders") == list(range(10))
