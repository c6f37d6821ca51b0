"""Foreign clients over TLS with certificates, PLAIN and SCRAM; certificates, sessions and users that change under load.

librdkafka, kafka-python and aiokafka log in with every mechanism in tests/system/security, and Spark's JVM connector
in test_interop_spark_jvm.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from barnabas import Admin
from barnabas.cli.app import build_app
from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.core.child_processes import start_child
from barnabas.testing.process_cluster import ConfiguredCluster
from tests.interop.foreign_clients import HERE, run_go, run_node
from tests.interop.jars import clients_classpath
from tests.interop.secure_broker import MECHANISMS, SecureBroker, secure_broker
from tests.progress import STANDSTILL_S, wait_until

COUNT = 50
NO_DELAY = "group.initial.rebalance.delay.ms=0"
RENEWALS = 1
"""The number of renewed sessions after which a test goes on."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
@pytest.mark.parametrize("program", [run_go, run_node], ids=["franz-go", "kafkajs"])
def test_a_program_writes_and_reads(
    broker: SecureBroker, program: Any, mechanism: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in broker.environment(mechanism).items():
        monkeypatch.setenv(name, value)
    topic = f"{program.__name__}-{mechanism}"
    program(broker.address(mechanism), topic, COUNT, "none", "produce")
    assert broker.count_records(topic) == COUNT
    rows = program(broker.address(mechanism), topic, COUNT, f"g-{topic}", "consume")
    assert sorted(row["key"] for row in rows) == sorted(f"key-{number}" for number in range(COUNT))


def java(*arguments: str) -> list[str]:
    return ["java", "-cp", clients_classpath(), str(HERE / "java" / "Secured.java"), *arguments]


def test_java_writes_and_reads_in_a_group(
    broker: SecureBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each mechanism, and with the settings that `barnabas cluster init --secure` writes."""
    folder = tmp_path / "cluster"
    made = CliRunner().invoke(
        build_app(("cluster",)), ["cluster", "init", "--secure", str(folder), "-n", "1", "--port", "0", "-c", NO_DELAY]
    )
    assert made.exit_code == 0, made.output
    monkeypatch.setenv("BARNABAS_ADD_SCRAM", (folder / "first-users").read_text())
    files = []
    for mechanism in (None, *MECHANISMS):
        files.append(tmp_path / f"{mechanism}.properties")
        files[-1].write_text(broker.properties(mechanism))
    files.append(folder / "client.properties")
    with ConfiguredCluster(folder):
        command = java("copy", "java", str(COUNT), *map(str, files))
        done = subprocess.run(command, capture_output=True, text=True, timeout=STANDSTILL_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    read = [json.loads(line)["read"] for line in done.stdout.splitlines() if line.startswith("{")]
    assert read == [list(range(COUNT))] * len(files)


def set_password(broker: SecureBroker, user: str, password: str | None) -> None:
    """Create a user of SCRAM-SHA-512, or remove it."""
    mechanism = "SCRAM-SHA-512"
    with Admin(broker.ours()) as admin:
        change = (
            UserScramCredentialDeletion(user, mechanism)
            if password is None
            else UserScramCredentialUpsertion(user, mechanism, password, 4096)
        )
        assert admin.alter_user_scram_credentials([change]) == {user: None}


@contextmanager
def java_writer(config: Path) -> Iterator[Iterator[dict[str, Any]]]:
    """The lines of a Java producer that writes until it fails."""
    process = start_child(java("write", "java-load", str(config)), stdout=subprocess.PIPE, text=True)
    try:
        yield (json.loads(line) for line in process.stdout if line.startswith("{"))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_java_keeps_its_connection_through_new_certificates_and_sessions_until_its_user_is_removed(
    broker: SecureBroker, tmp_path: Path
) -> None:
    set_password(broker, "ines", "ines-secret")
    config = tmp_path / "ines.properties"
    config.write_text(broker.properties("SCRAM-SHA-512", "ines", "SHORT"))
    with java_writer(config) as lines:
        row = next(lines)
        broker.renew_certificate()
        before = _until_renewed(lines, row)
        broker.wait_for_certificate("SHORT")
        after = _until_renewed(lines, before)
        assert after["acknowledged"] > before["acknowledged"]
        refusals = broker.refusals("SHORT")
        set_password(broker, "ines", None)
        wait_until(
            lambda: broker.refusals("SHORT") > refusals, "a removed user is refused", progress=lambda: next(lines)
        )


def _until_renewed(lines: Iterator[dict[str, Any]], first: Mapping[str, Any]) -> dict[str, Any]:
    for row in lines:
        assert row["failure"] == ""
        if row["renewed"] >= first["renewed"] + RENEWALS:
            return row
    raise AssertionError("the producer has ended")


def test_librdkafka_keeps_its_connection_through_new_certificates_and_sessions_until_its_user_is_removed(
    broker: SecureBroker,
) -> None:
    from confluent_kafka import KafkaError, Producer

    set_password(broker, "otto", "otto-secret")
    errors: list[int] = []
    outcomes: list[KafkaError | None] = []
    settings = {**broker.librdkafka("SCRAM-SHA-512", "otto", "SHORT"), "linger.ms": 0, "message.timeout.ms": 5_000}
    producer = Producer({**settings, "error_cb": lambda error: errors.append(error.code())})

    def write() -> int:
        producer.produce("otto-load", b"v", on_delivery=lambda error, _message: outcomes.append(error))
        producer.poll(0.02)
        return len(outcomes)

    sessions = broker.authentications("SHORT")
    broker.renew_certificate()
    wait_until(lambda: write() and broker.authentications("SHORT") >= sessions + 1 + RENEWALS, "sessions are renewed",
               progress=write)  # fmt: skip
    broker.wait_for_certificate("SHORT")
    sessions = broker.authentications("SHORT")
    wait_until(lambda: write() and broker.authentications("SHORT") >= sessions + RENEWALS, "sessions are renewed again",
               progress=write)  # fmt: skip
    assert (errors, [error for error in outcomes if error]) == ([], [])
    set_password(broker, "otto", None)
    wait_until(lambda: write() and KafkaError._AUTHENTICATION in errors, "a removed user is refused", progress=write)
    producer.purge()
    producer.flush(10)
