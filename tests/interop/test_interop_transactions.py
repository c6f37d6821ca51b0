"""Transactions of foreign clients: a pass through all that Java's can do, and read-process-write under kills.

The copiers: our Java program and Kafka's own `TransactionalMessageCopier`, and franz-go's GroupTransactSession.
librdkafka's is in `tests/system/transactions`, since it needs nothing but Python.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.foreign_clients import go_program
from tests.interop.jars import clients_classpath, kafka_classpath
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


SIZES = pytest.mark.parametrize(
    ("records", "per_transaction", "kills"),
    [pytest.param(6_000, 100, 4, id="short"), pytest.param(100_000, 750, 20, id="long", marks=pytest.mark.slow)],
)


@SIZES
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

    told = prove(tmp_path, command, records=records, seed=7, kills=kills)
    assert told["broker"] > 0
    assert told["application"] > 0


@SIZES
def test_a_copy_by_kafkas_own_copier_survives_kills(
    tmp_path: Path, records: int, per_transaction: int, kills: int
) -> None:
    """Kafka's program is no static member: after each of its deaths, its session of 10 s must time out. It also ends
    when it has copied what there was, and is started again.
    """

    def command(bootstrap: str, source: str, target: str, group: str) -> list[str]:
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
        arguments = {
            "--broker-list": bootstrap,
            "--input-topic": source,
            "--input-partition": "-1",
            "--output-topic": target,
            "--consumer-group": group,
            "--transactional-id": f"copier-{group}",
            "--transaction-size": str(per_transaction),
            "--transaction-timeout": "10000",
        }
        given = [word for pair in arguments.items() for word in pair]
        main = "org.apache.kafka.tools.TransactionalMessageCopier"
        return ["java", *flags, "-cp", kafka_classpath(), main, *given, "--group-mode", "--use-group-metadata"]

    told = prove(tmp_path, command, records=records, seed=17, kills=kills)
    assert told["broker"] > 0
    assert told["application"] > 0


@SIZES
def test_a_copy_by_franz_go_survives_kills(tmp_path: Path, records: int, per_transaction: int, kills: int) -> None:
    def command(bootstrap: str, source: str, target: str, group: str) -> list[str]:
        return [str(go_program()), "copy", bootstrap, source, target, group, str(per_transaction)]

    told = prove(tmp_path, command, records=records, seed=27, kills=kills)
    assert told["broker"] > 0
    assert told["application"] > 0
