"""A remote session (Spark Connect) reads and writes `format("barnabas")`, which runs in the server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.spark.environment import prepare_environment
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until

pytestmark = pytest.mark.spark

CLIENT = """
import json, sys
from pyspark.sql import SparkSession

url, servers, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
assert not any(name.startswith("barnabas") for name in sys.modules)  # the client needs no Barnabas
options = {"kafka.bootstrap.servers": servers}


def read(topic):
    stored = spark.read.format("barnabas").options(**options).option("subscribe", topic)
    rows = stored.load()
    return sorted(int(row.v) for row in rows.selectExpr("cast(value as string) as v").collect())


numbers = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id as string) as value")
numbers.write.format("barnabas").options(**options).option("topic", "batch").mode("append").save()
stream = spark.readStream.format("barnabas").options(**options).option("subscribe", "batch")
doubled = stream.option("startingOffsets", "earliest").load()
doubled = doubled.selectExpr("cast(2 * cast(value as string) as string) value")
sink = doubled.writeStream.format("barnabas").options(**options).option("topic", "stream")
query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
print(json.dumps({"batch": read("batch"), "stream": read("stream"), "session": type(spark).__module__}))
"""


@pytest.fixture
def connect_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Spark Connect server with the environment of this process."""
    import pyspark

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    prepare_environment()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(pyspark.__path__[0], "bin", "spark-submit")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
        *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.sql.shuffle.partitions=2", "--conf", f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}"),
    ]
    log = tmp_path / "server.log"
    with log.open("wb") as output, subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output) as server:
        try:
            wait_until(
                lambda: server.poll() is not None or _accepts(port),
                "the server accepts connections",
                progress=lambda: log.stat().st_size,
            )
            assert server.poll() is None, log.read_text()
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()  # spark-submit has replaced itself with the JVM


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_a_remote_session_reads_and_writes_topics(broker: BrokerProcess, connect_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLIENT, connect_url, broker.bootstrap_servers, str(tmp_path / "checkpoint")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["batch"] == list(range(1000))
    assert found["stream"] == list(range(0, 2000, 2))
