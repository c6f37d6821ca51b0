"""Our `kafka-metadata-shell` beside Apache Kafka's, on a log of Apache Kafka and on one of ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.testing import EmbeddedBroker
from tests.interop.jars import shell_classpath

pytestmark = pytest.mark.interop

KAFKAS = Path(__file__).parents[1] / "golden" / "metadata" / "kafka_4_3_1_cluster_metadata.log"
ATTEMPTS = 10
OURS = [sys.executable, "-c", "from barnabas.cli.kafka.cluster.metadata_shell import main; main()"]


def printed(shell: Sequence[str], log: Path, command: Sequence[str]) -> list[str]:
    words = [*shell, "--snapshot", str(log), *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()


def both(log: Path, *command: str) -> tuple[list[str], list[str]]:
    """What Kafka's shell and ours print. Kafka's begins when it has read the first records of the file, and so prints
    less than all of it now and then."""
    java = ["java", "-cp", shell_classpath(), "org.apache.kafka.shell.MetadataShell"]
    ours = printed(OURS, log, command)
    for _ in range(ATTEMPTS):
        theirs = printed(java, log, command)
        if theirs == ours:
            break
    return theirs, ours


@pytest.mark.parametrize("command", [("tree", "/image"), ("find", "/image"), ("ls", "/", "/image/provenance")])
def test_both_shells_print_the_same_of_a_log_of_kafka(command: tuple[str, ...]) -> None:
    theirs, ours = both(KAFKAS, *command)
    assert ours == theirs


def test_both_shells_print_the_same_of_our_log(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=str(tmp_path)) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 3, configs={"retention.ms": "1000"})
    (log,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
    theirs, ours = both(log, "tree", "/image")
    assert ours == theirs
