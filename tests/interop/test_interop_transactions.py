"""The Java client's transactions: a pass through all of them, and read-process-write under kills."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.jars import clients_classpath
from tests.system.transactions.exactly_once import prove

JAVA = Path(__file__).parent / "java"


def test_the_java_client_from_commit_to_an_abort_by_hand(broker: BrokerProcess) -> None:
    command = ["java", "-cp", clients_classpath(), str(JAVA / "Transactions.java"), broker.bootstrap_servers, "java-tx"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    said = [line.split(": ", 1) for line in done.stdout.splitlines()]
    assert said == [
        ["transaction.version", "2"],
        ["epoch after six", "6"],
        ["state", "CompleteAbort"],
        ["state", "Ongoing"],
        ["partitions", "[java-tx-0]"],
        ["zombie", "fenced"],
        ["committed", "[a0, a1, a3, a4, heir]"],
        ["all", "[a0, a1, a2, a3, a4, a5, zombie, heir]"],
        ["listed", "{java-a=Ongoing}"],
        ["committed after an abort by hand", "[a0, a1, a3, a4, heir]"],
        ["fenced by hand", "ProducerFencedException"],
    ]


@pytest.mark.parametrize(
    ("records", "per_transaction", "kills"),
    [pytest.param(6_000, 100, 4, id="short"), pytest.param(100_000, 750, 20, id="long", marks=pytest.mark.slow)],
)
def test_a_copy_by_the_java_client_survives_kills(
    tmp_path: Path, records: int, per_transaction: int, kills: int
) -> None:
    subprocess.run(
        ["javac", "-cp", clients_classpath(), "-d", str(tmp_path / "classes"), str(JAVA / "TransactionalCopier.java")],
        check=True,
        timeout=120,
    )

    def command(bootstrap: str, source: str, target: str, group: str) -> list[str]:
        classes = f"{clients_classpath()}:{tmp_path / 'classes'}"
        return ["java", "-cp", classes, "TransactionalCopier", bootstrap, source, target, group, str(per_transaction)]

    told = prove(tmp_path, command, records=records, seed=7, kills=kills, limit_s=400)
    assert told["broker"] > 0
    assert told["application"] > 0
