"""Apache Kafka's own command-line tools against our broker, and our tools of the same names beside them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.jars import kafka_classpath

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
}

SERVER_FIRST = ("kafka-features", "kafka-metadata-quorum")
"""These take --bootstrap-server before their command."""

Run = Callable[..., str]


def _run(command: list[str], stdin: str, *, fails: bool) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90)
    assert (done.returncode != 0) == fails, f"{command[-8:]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def classpath() -> str:
    return kafka_classpath()


@pytest.fixture
def java(broker: BrokerProcess, classpath: str) -> Run:
    """Kafka's tool."""

    def run(tool: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        server = () if tool == "kafka-dump-log" else ("--bootstrap-server", broker.bootstrap_servers)
        whole = (*server, *arguments) if tool in SERVER_FIRST else (*arguments, *server)
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, TOOLS[tool], *whole]
        return _run(command, stdin, fails=fails)

    return run


@pytest.fixture
def ours(broker: BrokerProcess) -> Run:
    """Our tool of the same name."""

    def run(tool: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        server = () if tool == "kafka-dump-log" else ("--bootstrap-server", broker.bootstrap_servers)
        command = [str(Path(sys.executable).parent / tool), *arguments, *server]
        assert os.access(command[0], os.X_OK), f"{command[0]} is missing: pip install -e ."
        return _run(command, stdin, fails=fails)

    return run


@pytest.fixture
def topic(java: Run) -> str:
    """Three partitions, nine records with keys, written by Kafka's tools."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    java("kafka-topics", "--create", "--topic", name, "--partitions", "3", "--config", "retention.ms=86400000")
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    java("kafka-console-producer", "--topic", name, *properties, stdin="".join(f"k{i}:v{i}\n" for i in range(9)))
    return name


def words(text: str) -> list[list[str]]:
    """The columns of every line that has any."""
    return [line.split() for line in text.splitlines() if line.strip()]


def same(java: Run, ours: Run, tool: str, *arguments: str) -> None:
    assert words(ours(tool, *arguments)) == words(java(tool, *arguments))


def test_topics(java: Run, ours: Run, topic: str) -> None:
    same(java, ours, "kafka-topics", "--list", "--exclude-internal")
    same(java, ours, "kafka-topics", "--describe", "--topic", topic)
    same(java, ours, "kafka-topics", "--describe", "--topics-with-overrides", "--topic", topic)
    java("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    assert "PartitionCount: 4" in ours("kafka-topics", "--describe", "--topic", topic)
    assert "already exists" in java("kafka-topics", "--create", "--topic", topic, fails=True)
    for run in (java, ours):
        assert "does not exist as expected" in run("kafka-topics", "--describe", "--topic", "nowhere", fails=True)
    java("kafka-topics", "--delete", "--topic", topic)
    assert topic not in ours("kafka-topics", "--list").splitlines()


def test_reading_and_writing(java: Run, ours: Run, topic: str) -> None:
    names = ("key", "value", "partition", "offset", "timestamp", "headers")
    show = [arg for name in names for arg in ("--formatter-property", f"print.{name}=true")]
    read = ("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "9", *show)
    theirs, mine = java(*read), ours(*read)
    assert sorted(mine.splitlines()) == sorted(theirs.splitlines())
    assert len(mine.splitlines()) == 9
    headed = ("--reader-property", "parse.headers=true", "--compression-codec", "zstd")
    ours("kafka-console-producer", "--topic", topic, *headed, stdin="h:1,i:2\tfrom us\n")
    again = java("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "10", *show)
    assert [line.split("\t")[3:] for line in again.splitlines() if line.endswith("from us")] == [
        ["h:1,i:2", "null", "from us"]
    ]


def test_groups(java: Run, ours: Run, topic: str) -> None:
    group = f"g-{topic}"
    read = ("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages")
    first = java(*read, "4").splitlines()
    assert sorted([*first, *ours(*read, "5").splitlines()]) == [f"v{i}" for i in range(9)]
    for mode in ((), ("--state",), ("--members",)):
        same(java, ours, "kafka-consumer-groups", "--describe", "--group", group, *mode)
    java(
        "kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "1", "--execute"
    )
    same(java, ours, "kafka-consumer-groups", "--describe", "--group", group)
    plan = ("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--shift-by", "1")
    assert sorted(words(ours(*plan, "--dry-run"))) == sorted(words(java(*plan, "--dry-run")))
    exported = [sorted(run(*plan, "--export").split()) for run in (java, ours)]
    assert exported[0] == exported[1]
    row = [group, "Classic", "consumer"]
    assert row in words(java("kafka-groups", "--list"))
    assert row in words(ours("kafka-groups", "--list"))
    java("kafka-consumer-groups", "--delete", "--group", group)
    assert group not in ours("kafka-consumer-groups", "--list").split()


def test_offsets(java: Run, ours: Run, topic: str, tmp_path: Path) -> None:
    for time in ("-1", "-2", "max-timestamp"):
        same(java, ours, "kafka-get-offsets", "--topic", topic, "--time", time)
    same(java, ours, "kafka-get-offsets", "--topic-partitions", f"{topic}:1-")
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 1}], "version": 1}))
    deleted = java("kafka-delete-records", "--offset-json-file", str(plan))
    assert deleted == ours("kafka-delete-records", "--offset-json-file", str(plan))


def test_configs(java: Run, ours: Run, topic: str) -> None:
    added = ("--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
    java("kafka-configs", "--alter", "--topic", topic, *added)
    same(java, ours, "kafka-configs", "--describe", "--topic", topic)
    same(java, ours, "kafka-configs", "--describe", "--topic", topic, "--all")
    ours("kafka-configs", "--alter", "--topic", topic, "--delete-config", "max.message.bytes")
    same(java, ours, "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    same(java, ours, "kafka-configs", "--describe", "--broker-defaults")


def test_the_cluster(java: Run, ours: Run, topic: str) -> None:
    same(java, ours, "kafka-cluster", "cluster-id")
    same(java, ours, "kafka-cluster", "list-endpoints")
    same(java, ours, "kafka-features", "describe")
    same(java, ours, "kafka-metadata-quorum", "describe", "--status")
    served = re.compile(r"\t\w+\((\d+)\): (\d+(?: to \d+)?)")
    apis = [{m[1]: m[2] for m in served.finditer(run("kafka-broker-api-versions"))} for run in (java, ours)]
    assert apis[1] == apis[0]
    described = [run("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines() for run in (java, ours)]
    assert described[0][:2] == described[1][:2]
    logs = [json.loads(lines[2])["brokers"][0]["logDirs"][0]["partitions"] for lines in described]
    logs = [sorted(partitions, key=lambda p: str(p["partition"])) for partitions in logs]
    assert logs[0] == logs[1]
    assert len(logs[0]) == 3


def events(text: str) -> list[dict[str, object]]:
    """The events that a tool printed, in an order of their own, without what differs from run to run: times, the order
    of a Java set of offsets, and whether the JVM still runs the hook that prints `shutdown_requested`.
    """
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        for name in ("timestamp", "avg_throughput"):
            event.pop(name, None)
        for part in event.get("partitions", ()):
            part.get("offsets", []).sort()
    kept = [event for event in found if event["name"] != "shutdown_requested"]
    return sorted(kept, key=lambda event: json.dumps(event, sort_keys=True))


def test_verifiable_producers_and_consumers(java: Run, ours: Run) -> None:
    written, read = [], []
    for run in (java, ours):
        name = f"verifiable-{uuid.uuid4().hex[:8]}"
        ours("kafka-topics", "--create", "--topic", name, "--partitions", "1")
        write = ("kafka-verifiable-producer", "--topic", name, "--max-messages", "5", "--repeating-keys", "2")
        written.append(events(run(*write, "--value-prefix", "3").replace(name, "t")))
        what = ("--topic", name, "--max-messages", "5", "--verbose")
        shares = ("--offset-reset-strategy", "earliest", "--acknowledgement-mode", "sync")
        grouped = run("kafka-verifiable-consumer", "--group-id", name, *what)
        shared = run("kafka-verifiable-share-consumer", "--group-id", f"s-{name}", *what, *shares)
        read.append([events(text.replace(name, "t")) for text in (grouped, shared)])
    assert written[1] == written[0]
    assert read[1] == read[0]


def test_a_console_share_consumer(java: Run, ours: Run, topic: str) -> None:
    shown = []
    for run in (java, ours):
        group = f"g-{uuid.uuid4().hex[:8]}"
        ours("kafka-configs", "--alter", "--group", group, "--add-config", "share.auto.offset.reset=earliest")
        show = ("--formatter-property", "print.key=true", "--formatter-property", "print.delivery=true")
        read = ("kafka-console-share-consumer", "--topic", topic, "--group", group, "--max-messages", "9", *show)
        released, accepted = run(*read, "--release"), run(*read)
        shown.append([sorted(released.splitlines()), sorted(accepted.splitlines())])
    assert shown[1] == shown[0]


def test_the_latency_from_end_to_end(java: Run, ours: Run, topic: str) -> None:
    measure = ("kafka-e2e-latency", "--topic", topic, "--num-records", "3", "--record-size", "9")
    outputs = [run(*measure, "--producer-acks", "all", "--num-headers", "1") for run in (java, ours)]
    shapes = [[re.sub(r"[0-9.]+", "N", line) for line in output.splitlines()] for output in outputs]
    assert shapes[1] == shapes[0]
    for run in (java, ours):
        run(*measure, "--producer-acks", "0", fails=True)


def test_an_application_of_kafka_streams_is_reset(java: Run, ours: Run, topic: str) -> None:
    for position in (("--dry-run",), ("--to-offset", "2")):
        printed = []
        for tool, run in (("java", java), ("ours", ours)):
            application = f"{tool}-{topic}"
            ours("kafka-topics", "--create", "--if-not-exists", "--topic", f"{application}-counts-changelog")
            reset = ("kafka-streams-application-reset", "--application-id", application, "--input-topics", topic)
            printed.append(sorted(run(*reset, *position).replace(application, "app").splitlines()))
        assert printed[1] == printed[0]


def test_dumps(java: Run, ours: Run, topic: str, broker: BrokerProcess) -> None:
    group = f"g-{topic}"
    ours("kafka-console-consumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "9")
    first = "00000000000000000000"
    for partition in range(3):
        folder = broker.data_dir / f"{topic}-{partition}"
        files = f"{folder}/{first}.log"
        for options in ((), ("--print-data-log",), ("--deep-iteration",)):
            assert ours("kafka-dump-log", "--files", files, *options) == java(
                "kafka-dump-log", "--files", files, *options
            )
    for partition in range(4):
        files = str(broker.data_dir / f"__consumer_offsets-{partition}" / f"{first}.log")
        dump = ("kafka-dump-log", "--files", files, "--offsets-decoder")
        assert ours(*dump) == java(*dump)
    metadata = str(broker.data_dir / "__cluster_metadata-0" / f"{first}.log")
    theirs = java("kafka-dump-log", "--files", metadata, "--cluster-metadata-decoder").splitlines()
    mine = ours("kafka-dump-log", "--files", metadata, "--cluster-metadata-decoder").splitlines()
    assert mine[: len(theirs)] == theirs  # the log may have grown in between
