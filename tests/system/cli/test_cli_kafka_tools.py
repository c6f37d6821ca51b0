"""Kafka's tools by their own names, run against a broker."""

from __future__ import annotations

import json
from pathlib import Path

from barnabas.testing import EmbeddedBroker
from tests.system.cli.conftest import Cli


def test_topics(cli: Cli) -> None:
    created = cli("kafka-topics", "--create", "--topic", "a.b", "--partitions", "2", "--config", "retention.ms=7")
    assert created.lines[-1] == "Created topic a.b."
    assert created.lines[0].startswith("WARNING: Due to limitations in metric names")
    described = cli("kafka-topics", "--describe", "--topic", "a.b").lines
    # A new cluster sets min.insync.replicas for all brokers, because eligible leader replicas need it (KIP-966).
    configs = "Configs: min.insync.replicas=1,retention.ms=7"
    assert described[0].split("\t")[0::2] == ["Topic: a.b", "PartitionCount: 2", configs]
    assert described[1].startswith("\tTopic: a.b\tPartition: 0\tLeader: ")
    assert "a.b" in cli("kafka-topics", "--list").lines
    assert cli("kafka-topics", "--list", "--topic", "a[.].*").lines == ["a.b"]
    assert cli("kafka-topics", "--alter", "--topic", "a.b", "--partitions", "3").code == 0
    again = cli("kafka-topics", "--create", "--topic", "a.b")
    assert again.code == 1
    assert again.lines[-1].startswith("Error while executing topic command : ")
    assert again.lines[-1].endswith("Topic 'a.b' already exists.")
    assert cli("kafka-topics", "--create", "--topic", "a.b", "--if-not-exists").code == 0
    assert cli("kafka-topics", "--delete", "--topic", "a.b").code == 0
    gone = cli("kafka-topics", "--delete", "--topic", "a.b")
    assert (gone.code, "does not exist as expected" in gone.out) == (1, True)
    assert cli("kafka-topics", "--delete", "--topic", "a.b", "--if-exists").code == 0


def test_console_producer_and_consumer(cli: Cli, topic: str) -> None:
    pairs = ("--reader-property", "parse.key=true", "--reader-property", "key.separator= ")
    assert cli("kafka-console-producer", "--topic", topic, *pairs, stdin=b"a 1\nb 2\n").code == 0
    show = ("--formatter-property", "print.key=true", "--property", "key.separator==")
    read = cli("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2", *show)
    assert sorted(read.lines) == ["a=1", "b=2"]
    assert read.err == "Processed a total of 2 messages\n"
    late = cli("kafka-console-consumer", "--topic", topic, "--timeout-ms", "100")
    assert late.lines == []
    assert late.err.splitlines() == [
        "Error processing message, terminating consumer process: org.apache.kafka.common.errors.TimeoutException",
        "Processed a total of 0 messages",
    ]
    matching = cli("kafka-console-consumer", "--include", f"{topic[:-1]}.", "--from-beginning", "--max-messages", "2")
    assert sorted(matching.lines) == ["1", "2"]


def test_a_record_that_cannot_be_shown(cli: Cli, topic: str) -> None:
    cli("kafka-console-producer", "--topic", topic, stdin=b"12345678\nshort\n")
    ask = ("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "2")
    ask += ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    skipped = cli(*ask, "--skip-message-on-error")
    assert skipped.lines == [str(int.from_bytes(b"12345678", "big"))]
    assert "1 message(s) could not be shown" in skipped.err
    assert "Size of data received by LongDeserializer is not 8" in cli(*ask).err


def test_groups(cli: Cli, filled: str) -> None:
    group = f"g-{filled}"
    read = cli(
        "kafka-console-consumer", "--topic", filled, "--group", group, "--from-beginning", "--max-messages", "10"
    )
    assert len(read.lines) == 10
    assert group in cli("kafka-consumer-groups", "--list").lines
    described = cli("kafka-consumer-groups", "--describe", "--group", group)
    assert described.err == f"\nConsumer group '{group}' has no active members.\n"
    heading = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert described.lines[1].split() == heading.split()
    assert [row.split()[2::3] for row in described.lines[2:]] == [["0", "0", "-"], ["1", "0", "-"]]
    state = cli("kafka-consumer-groups", "--describe", "--group", group, "--state").lines[-1].split()
    assert (state[0], state[-2:]) == (group, ["Empty", "0"])
    assert [group, "Classic", "consumer"] in [row.split() for row in cli("kafka-groups", "--list").lines]
    reset = ("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", filled, "--to-earliest")
    planned = cli(*reset)
    assert planned.err.startswith("WARN: No action will be performed as the --execute option is missing.")
    exported = cli(*reset, "--export").lines
    assert exported == [f"{filled},0,0", f"{filled},1,0"]
    moved = cli(*reset, "--execute").lines
    assert [row.split() for row in moved[1:]] == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        [group, filled, "0", "0"],
        [group, filled, "1", "0"],
    ]
    forgotten = cli("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", filled).lines
    assert forgotten[0] == f"Request succeeded for deleting offsets from group {group}."
    deleted = cli("kafka-consumer-groups", "--delete", "--group", group)
    assert deleted.out == f"Deletion of requested consumer groups ('{group}') was successful.\n"
    assert cli("kafka-consumer-groups", "--delete", "--group", group).code == 1


def test_offsets_and_deleting_records(cli: Cli, filled: str, tmp_path: Path) -> None:
    ends = dict(line.rsplit(":", 1) for line in cli("kafka-get-offsets", "--topic", filled).lines)
    assert sum(map(int, ends.values())) == 10
    assert cli("kafka-get-offsets", "--topic-partitions", f"{filled}:1-", "--time", "-2").lines == [f"{filled}:1:0"]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 0, "offset": 2}], "version": 1}))
    deleted = cli("kafka-delete-records", "--offset-json-file", str(plan)).lines
    assert deleted[-1] == f"partition: {filled}-0\tlow_watermark: 2"
    assert cli("kafka-get-offsets", "--topic", filled, "--time", "earliest").lines == [f"{filled}:0:2", f"{filled}:1:0"]
    assert cli("kafka-get-offsets", "--topic", filled, "--time", "soon").code == 1


def test_configs(cli: Cli, topic: str) -> None:
    alter = ("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic)
    added = cli(*alter, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]")
    assert added.out == f"Completed updating config for topic {topic}.\n"
    shown = cli("kafka-configs", "--describe", "--topic", topic).lines
    assert shown == [
        f"Dynamic configs for topic {topic} are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}",
    ]
    assert cli(*alter, "--delete-config", "retention.ms,cleanup.policy").code == 0
    assert len(cli("kafka-configs", "--describe", "--topic", topic).lines) == 1
    assert len(cli("kafka-configs", "--describe", "--broker", "1", "--all").lines) > 150


def test_the_cluster(cli: Cli, filled: str, broker: EmbeddedBroker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    assert cli("kafka-cluster", "cluster-id").out.startswith("Cluster ID: ")
    assert cli("kafka-cluster", "list-endpoints").lines[1].split() == ["1", host, port, "null", "unfenced", "broker"]
    apis = cli("kafka-broker-api-versions").lines
    assert apis[0] == f"{broker.bootstrap_servers} (id: 1 rack: null isFenced: false) -> ("
    assert apis[1].startswith("\tProduce(0): 0 to ")
    assert apis[-1] == ")"
    dirs = json.loads(cli("kafka-log-dirs", "--describe", "--topic-list", filled).lines[-1])
    (log_dir,) = dirs["brokers"][0]["logDirs"]
    assert [p["partition"] for p in log_dir["partitions"]] == [f"{filled}-0", f"{filled}-1"]
    features = {line.split()[1]: line.split()[-3] for line in cli("kafka-features", "describe").lines}
    assert features["transaction.version"] == "2"
    status = dict(line.split(None, 1) for line in cli("kafka-metadata-quorum", "describe", "--status").lines)
    assert (status["LeaderId:"], status["MaxFollowerLag:"]) == ("1", "0")
    replicas = cli("kafka-metadata-quorum", "describe", "--replication").lines
    assert replicas[1].split()[-1] == "Leader"


def test_measuring(cli: Cli, topic: str) -> None:
    size = ("--record-size", "50", "--throughput", "-1", "--warmup-records", "10")
    wrote = cli("kafka-producer-perf-test", "--topic", topic, "--num-records", "200", *size).lines
    assert wrote[0].startswith("200 records sent, ")
    assert wrote[1].startswith("190 steady state records sent, ")
    in_transactions = ("--num-records", "20", "--record-size", "50", "--transactional-id", "perf")
    wrote = cli("kafka-producer-perf-test", "--topic", topic, *in_transactions, "--transaction-duration-ms", "1").lines
    assert wrote[-1].startswith("20 records sent, ")
    found = cli("kafka-transactions", "describe", "--transactional-id", "perf").lines
    assert "CompleteCommit" in found[1].split()
    read = cli("kafka-consumer-perf-test", "--topic", topic, "--num-records", "200").lines
    heading = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    assert read[0] == heading + "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    assert read[1].split(", ")[4] == "200"
    short = cli("kafka-consumer-perf-test", "--topic", topic, "--num-records", "900", "--timeout", "200")
    assert "WARNING: Exiting before consuming the expected number of records: timeout (200 ms)" in short.err
