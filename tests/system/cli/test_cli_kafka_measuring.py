"""Kafka's tools that write and read by themselves, and print events or measurements."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from barnabas.testing import EmbeddedBroker
from tests.system.cli.conftest import Cli, Result, module_of

STOPPED = 128 + signal.SIGTERM


def events(result: Result) -> list[dict[str, Any]]:
    """The printed events without their times."""
    assert result.code == 0, result.err
    return [{k: v for k, v in json.loads(line).items() if k != "timestamp"} for line in result.lines]


def names(found: list[dict[str, Any]]) -> list[str]:
    return [event["name"] for event in found]


def test_the_verifiable_producer_prints_each_acknowledgement(cli: Cli, topic: str) -> None:
    write = ("kafka-verifiable-producer", "--topic", topic, "--max-messages", "3")
    found = events(cli(*write, "--repeating-keys", "1", "--value-prefix", "7"))
    assert names(found) == ["startup_complete", *["producer_send_success"] * 3, "shutdown_complete", "tool_data"]
    (partition,) = {event["partition"] for event in found[1:4]}
    assert found[1:4] == [
        {
            "name": "producer_send_success",
            "key": "0",
            "value": f"7.{i}",
            "topic": topic,
            "partition": partition,
            "offset": i,
        }
        for i in range(3)
    ]
    assert {k: found[-1][k] for k in ("sent", "acked", "target_throughput")} == {
        "sent": 3,
        "acked": 3,
        "target_throughput": -1,
    }
    dated = events(cli(*write, "--message-create-time", "5000", "--acks", "1", "--throughput", "1000"))
    assert [event["key"] for event in dated[1:4]] == [None, None, None]
    shown = cli("consume", topic, "--until-end", "--json").lines
    assert 5000 <= min(json.loads(line)["timestamp"] for line in shown) < 60_000


def test_the_verifiable_producer_prints_failures(cli: Cli, topic: str) -> None:
    assert cli("configs", "alter", "--topic", topic, "--set", "max.message.bytes=10").code == 0
    found = events(cli("kafka-verifiable-producer", "--topic", topic, "--max-messages", "1"))
    assert names(found) == ["startup_complete", "producer_send_error", "shutdown_complete", "tool_data"]
    assert found[1]["exception"] == "class org.apache.kafka.common.errors.RecordTooLargeException"
    assert (found[1]["key"], found[1]["value"], found[1]["topic"]) == (None, "0", topic)
    assert (found[-1]["sent"], found[-1]["acked"]) == (1, 0)


def test_the_verifiable_consumer_prints_rebalances_records_and_commits(cli: Cli, filled: str) -> None:
    read = ("kafka-verifiable-consumer", "--topic", filled, "--group-id", f"v-{filled}")
    found = events(cli(*read, "--max-messages", "10", "--verbose", "--group-protocol", "consumer"))
    partitions = [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}]
    assert found[:2] == [{"name": "startup_complete"}, {"name": "partitions_assigned", "partitions": partitions}]
    records = [event for event in found if event["name"] == "record_data"]
    assert sorted((r["key"], r["value"]) for r in records) == [(f"k{i}", f"v{i}") for i in range(10)]
    consumed = [event for event in found if event["name"] == "records_consumed"]
    assert sum(event["count"] for event in consumed) == 10
    assert all(
        part["count"] == part["maxOffset"] - part["minOffset"] + 1 for event in consumed for part in event["partitions"]
    )
    committed = [event for event in found if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in committed)
    assert {(o["topic"], o["partition"]): o["offset"] for event in committed for o in event["offsets"]} == {
        (part["topic"], part["partition"]): part["maxOffset"] + 1 for event in consumed for part in event["partitions"]
    }
    assert names(found)[-3:] == ["partitions_revoked", "shutdown_complete", "shutdown_requested"]


def test_a_verifiable_consumer_that_reads_less_commits_less(cli: Cli, filled: str) -> None:
    read = ("kafka-verifiable-consumer", "--topic", filled, "--group-id", f"w-{filled}", "--group-protocol", "consumer")
    found = events(cli(*read, "--max-messages", "4"))
    committed = [o for event in found if event["name"] == "offsets_committed" for o in event["offsets"]]
    assert sum(o["offset"] for o in committed) == 4


def share_from_the_start(cli: Cli, group: str) -> None:
    config = ("--add-config", "share.auto.offset.reset=earliest")
    assert cli("kafka-configs", "--alter", "--group", group, *config).code == 0


def test_the_console_share_consumer_accepts_releases_and_rejects(cli: Cli, filled: str) -> None:
    group = f"s-{filled}"
    share_from_the_start(cli, group)
    read = ("kafka-console-share-consumer", "--topic", filled, "--group", group, "--formatter-property")
    released = cli(*read, "print.delivery=true", "--max-messages", "10", "--release")
    assert sorted(released.lines) == [f"Delivery:1\tv{i}" for i in range(10)]
    assert released.err == "Processed a total of 10 messages\n"
    assert sorted(cli(*read, "print.delivery=true", "--max-messages", "10").lines) == [
        f"Delivery:2\tv{i}" for i in range(10)
    ]
    late = cli(*read, "print.key=true", "--timeout-ms", "300")
    assert (late.code, late.lines) == (0, [])
    assert late.err.splitlines() == [
        "Error processing message, terminating consumer process: org.apache.kafka.common.errors.TimeoutException",
        "Processed a total of 0 messages",
    ]


def test_a_record_that_cannot_be_printed_is_rejected_on_request(cli: Cli, topic: str) -> None:
    group = f"r-{topic}"
    share_from_the_start(cli, group)
    cli("produce", topic, stdin=b"short\n12345678\n")
    read = ("kafka-console-share-consumer", "--topic", topic, "--group", group, "--max-messages", "2")
    read += ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    assert "Size of data received by LongDeserializer is not 8" in cli(*read).err
    rejected = cli(*read, "--reject-message-on-error")
    assert (rejected.code, rejected.lines) == (0, [str(int.from_bytes(b"12345678", "big"))])
    assert "rejecting this message" in rejected.err


def test_the_verifiable_share_consumer_prints_records_and_acknowledgements(cli: Cli, filled: str) -> None:
    read = ("kafka-verifiable-share-consumer", "--topic", filled, "--group-id", f"x-{filled}", "--max-messages", "10")
    found = events(cli(*read, "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest", "--verbose"))
    assert found[:2] == [
        {"name": "startup_complete"},
        {"name": "offset_reset_strategy_set", "offsetResetStrategy": "earliest"},
    ]
    records = [event for event in found if event["name"] == "record_data"]
    assert sorted(r["value"] for r in records) == [f"v{i}" for i in range(10)]
    acknowledged = [event for event in found if event["name"] == "offsets_acknowledged"]
    assert all(event["success"] for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == 10
    assert found[-1] == {"name": "shutdown_complete"}


def test_a_pattern_says_how_each_record_is_acknowledged(cli: Cli, topic: str) -> None:
    assert cli("produce", topic, stdin=b"0\n1\n2\n3\n").code == 0
    read = ("kafka-verifiable-share-consumer", "--topic", topic, "--group-id", f"y-{topic}", "--max-messages", "5")
    read += ("--offset-reset-strategy", "earliest", "--acknowledgement-mode", "async")
    found = events(cli(*read, "--ack-pattern", "accept,renew,reject,accept"))
    kinds = [event["ackTypeCounts"] for event in found if event["name"] == "offsets_acknowledged"]
    total = {kind: sum(part.get(kind, 0) for part in kinds) for kind in ("ACCEPT", "REJECT", "RENEW")}
    assert total == {"ACCEPT": 2, "REJECT": 2, "RENEW": 1}  # the renewed record takes the next entry: reject


def test_measuring_a_share_group(cli: Cli, filled: str) -> None:
    group = f"p-{filled}"
    share_from_the_start(cli, group)
    read = ("kafka-share-consumer-perf-test", "--topic", filled, "--group", group, "--threads", "2")
    measured = cli(*read, "--num-records", "10", "--show-consumer-stats").lines
    assert measured[0].split(", ")[2:] == [
        "data.consumed.in.MB",
        "MB.sec",
        "nMsg.sec",
        "data.consumed.in.nMsg",
        "fetch.time.ms",
    ]
    assert [line.partition("consumption metrics-")[0] for line in measured[1:3]] == [
        f"Share consumer {i} having client id perf-share-consumer-client-{i} " for i in (1, 2)
    ]
    assert measured[3].split(", ")[5] == "10"
    short = cli(*read, "--num-records", "1", "--timeout", "100", "--hide-header").lines
    assert short[0].startswith("WARNING: Exiting before consuming the expected number of records: timeout (100 ms)")


def test_measuring_the_latency_from_end_to_end(cli: Cli, topic: str) -> None:
    size = ("--num-records", "5", "--record-size", "10", "--num-headers", "2", "--record-header-key-size", "3")
    measured = cli("kafka-e2e-latency", "--topic", topic, "--producer-acks", "all", *size).lines
    assert measured[0].startswith("0\t")
    assert measured[1].startswith("Avg latency: ")
    assert measured[2].startswith("Percentiles: 50th = ")
    created = cli("kafka-e2e-latency", "--topic", f"{topic}-new", "--producer-acks", "1", *size).lines
    assert created[0] == (
        f'Topic "{topic}-new" does not exist. Will create topic with 1 partition(s) and replication factor = 1'
    )


def test_a_signal_ends_the_verifiable_tools_in_order(broker: EmbeddedBroker, topic: str) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers, "--topic", topic)
    endings = {
        "kafka-verifiable-producer": ((), ["shutdown_complete", "tool_data"]),
        "kafka-verifiable-consumer": (("--group-id", f"t-{topic}"), ["shutdown_requested", "shutdown_complete"]),
    }
    for name, (arguments, ending) in endings.items():
        code = f"from {module_of(name)} import main; main()"
        command = [sys.executable, "-c", code, *server, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["name"] == "startup_complete"
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read().splitlines()
            assert process.wait() == STOPPED
        assert [json.loads(line)["name"] for line in rest][-2:] == ending
