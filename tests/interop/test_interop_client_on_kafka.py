"""The client suite that runs against our broker, against Apache Kafka: the same files, another `bootstrap.servers`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.servers import ApacheKafka

from tests.interop.jars import kafka_classpath
from tests.system.client.conftest import IMPATIENT

ROOT = Path(__file__).parents[2]
INTERRUPTED = "test_client_interrupted.py"
SUITE = ("test_client_system.py", "test_client_new_protocol.py", "test_client_share.py", INTERRUPTED)
pytestmark = pytest.mark.interop


@pytest.mark.parametrize(
    ("suite", "interrupted_runs"),
    [(SUITE, 300), pytest.param((INTERRUPTED,), 2_000, marks=pytest.mark.slow)],
    ids=["all", "interrupted"],
)
def test_the_client_suite_on_apache_kafka(suite: tuple[str, ...], interrupted_runs: int, tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path, kafka_classpath())
    with kafka.properties.open("a") as properties:
        properties.write("group.initial.rebalance.delay.ms=0\noffsets.topic.num.partitions=4\n")
        properties.write("share.coordinator.state.topic.num.partitions=4\n")
        properties.writelines(f"{name}={value}\n" for name, value in IMPATIENT.items())
    kafka.start()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", "--timeout", "400"]
            + [f"tests/system/client/{name}" for name in suite],
            cwd=ROOT,
            env={
                **os.environ,
                "BARNABAS_TEST_BOOTSTRAP": kafka.bootstrap_servers,
                "BARNABAS_INTERRUPTED_RUNS": str(interrupted_runs),
            },
            capture_output=True,
            text=True,
            timeout=840,
        )
    finally:
        kafka.stop()
    assert done.returncode == 0, done.stdout[-6_000:]
