"""Spark's own `spark-pipelines` runs the same files, and each of the two continues the other's work."""

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


def test_the_same_files_run_in_both_and_share_their_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("grpc", reason="needs pyspark[pipelines]")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    prepare_environment()
    project = tmp_path / "shop"
    ours = [sys.executable, "-m", "barnabas", "pipelines", "run", "--once"]
    theirs = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    with BrokerProcess(tmp_path / "broker") as broker:
        servers = broker.bootstrap_servers
        write_project(project, "shop", servers)
        produce(servers, "shop-orders", range(10))
        run(ours, project)
        assert consume(servers, "shop-large-orders") == list(range(10))
        produce(servers, "shop-orders", range(10, 20))
        run(theirs, project)
        assert consume(servers, "shop-large-orders") == list(range(20))
        produce(servers, "shop-orders", range(20, 30))
        run(ours, project)
        assert consume(servers, "shop-large-orders") == list(range(30))
