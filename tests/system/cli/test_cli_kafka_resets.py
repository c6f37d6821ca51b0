"""Kafka's tools that reset an application, compare replicas, and run a tool by its class."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from barnabas.client import Consumer
from barnabas.testing import EmbeddedBroker
from tests.system.cli.conftest import Cli

STOPPED = 128 + signal.SIGTERM


def internal_topics(cli: Cli, application: str) -> list[str]:
    """Create topics as an application of Kafka Streams does."""
    names = [f"{application}-counts-changelog", f"{application}-by-key-repartition"]
    for name in [*names, f"{application}-output"]:
        assert cli("topics", "create", name).code == 0
    return sorted(names)


def test_an_application_is_reset_to_its_start(cli: Cli, filled: str) -> None:
    application = f"app-{filled}"
    internal = internal_topics(cli, application)
    reset = ("kafka-streams-application-reset", "--application-id", application, "--input-topics", filled)
    plan = [
        f"Reset-offsets for input topics [{filled}]",
        f"Following input topics offsets will be reset to (for consumer group {application})",
        f"Topic: {filled} Partition: 0 Offset: 0",
        f"Topic: {filled} Partition: 1 Offset: 0",
        "Done.",
        f"Deleting inferred internal topics [{', '.join(internal)}]",
        "Done.",
    ]
    heading = "----Dry run displays the actions which will be performed when running Streams Reset Tool----"
    assert cli(*reset, "--dry-run").lines == [heading, *plan]
    assert application not in cli("kafka-groups", "--list").out
    assert cli(*reset).lines == plan
    described = cli("groups", "describe", application, "--json").json["offsets"]
    assert [(o["partition"], o["committed"]) for o in described] == [(0, 0), (1, 0)]
    assert cli("kafka-topics", "--list", "--topic", f"{application}-.*").lines == [f"{application}-output"]


def test_positions_of_a_reset(cli: Cli, filled: str, tmp_path: Path) -> None:
    reset = ("kafka-streams-application-reset", "--application-id", f"app-{filled}", "--input-topics", filled)

    def offsets(*arguments: str) -> list[int]:
        lines = cli(*reset, *arguments).lines
        return [int(line.rpartition(" ")[2]) for line in lines if " Offset: " in line]

    ends = offsets("--to-latest")
    assert sum(ends) == 10
    assert offsets("--shift-by", "-1") == [max(end - 1, 0) for end in ends]
    assert offsets("--to-offset", "1") == [min(1, end) for end in ends]
    assert offsets("--to-datetime", "2040-01-01T00:00:00.000") == ends
    assert offsets("--by-duration", "PT1H") == [0, 0]
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{filled},0,0\n{filled},1,0\n")
    assert offsets("--from-file", str(plan)) == [0, 0]
    plan.write_text(f"{filled},0,0\n")
    incomplete = cli(*reset, "--from-file", str(plan))
    assert (incomplete.code, f"has no line for {filled}-1" in incomplete.err) == (1, True)
    too_high = cli(*reset, "--to-offset", "99").lines
    assert f"New offset (99) is higher than latest offset. Value will be set to {ends[0]}" in too_high


def test_a_reset_names_topics_that_do_not_exist(cli: Cli, filled: str) -> None:
    reset = ("kafka-streams-application-reset", "--application-id", f"app-{filled}")
    missing = cli(*reset, "--input-topics", f"{filled},gone", "--intermediate-topics", filled)
    assert missing.code == 1
    assert "Following input topics are not found, skipping them" in missing.lines
    assert "Topic: gone" in missing.lines
    wrong = cli(*reset, "--internal-topics", filled)
    assert (wrong.code, "Invalid topic specified in the --internal-topics option" in wrong.err) == (1, True)


def test_members_are_removed_by_force_only(cli: Cli, broker: EmbeddedBroker, filled: str) -> None:
    application = f"app-{filled}"
    reset = ("kafka-streams-application-reset", "--application-id", application, "--input-topics", filled)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=application) as consumer:
        consumer.subscribe([filled])
        while not consumer.assignment():
            consumer.poll(100)
        refused = cli(*reset)
        assert (refused.code, refused.out) == (1, "")
        assert f"Consumer group '{application}' is still active and has following members: [" in refused.err
        forced = cli(*reset, "--force")
        assert forced.lines[0] == f"Force deleting all active members in the group: {application}"
        assert (forced.code, forced.err) == (0, "")


def test_replicas_are_compared_until_a_signal(broker: EmbeddedBroker, filled: str) -> None:
    code = "from barnabas.cli.kafka.cluster.replica_verification import main; main()"
    server = ("--broker-list", broker.bootstrap_servers, "--topics-include", filled, "--time", "-2")
    command = [sys.executable, "-c", code, *server, "--report-interval-ms", "1", "--max-wait-ms", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(": verification process is started\n")
        report = process.stdout.readline()
        assert f": max lag is 0 for partition {filled}-" in report
        assert report.endswith("among 2 partitions\n")
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait() == STOPPED


def test_replicas_of_no_topic(cli: Cli) -> None:
    none = cli("kafka-replica-verification", "--topics-include", "nothing-.*")
    assert (none.code, "No topics found" in none.err) == (1, True)
    wrong = cli("kafka-replica-verification", "--topics-include", "(")
    assert (wrong.code, "( is an invalid regex" in wrong.err) == (1, True)


def test_a_tool_is_run_by_its_class(cli: Cli, filled: str) -> None:
    by_name = cli("kafka-get-offsets", "--topic", filled).out
    for name in ("kafka.tools.GetOffsetShell", "org.apache.kafka.tools.GetOffsetShell"):
        assert cli("kafka-run-class", name, "--topic", filled).out == by_name
    for name in ("io.example.GetOffsetShell", "kafka.tools.Unknown"):
        unknown = cli("kafka-run-class", name)
        assert (unknown.code, "is not a class of a known tool" in unknown.err) == (1, True)


def test_api_versions_of_the_cluster(cli: Cli) -> None:
    assert cli("kafka-cluster", "api-versions").out == cli("kafka-broker-api-versions").out
