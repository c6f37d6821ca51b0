"""`barnabas links` and `kafka-cluster-mirrors`, without clusters."""

from __future__ import annotations

import pytest

from barnabas.cli.kafka.cluster.cluster_mirrors import link_of, select_topics
from barnabas.cli.links.options import warn_of_plain_secrets
from barnabas.cli.links.text import print_changes, print_described, print_drill
from barnabas.client.admin.links import (
    Link,
    LinkDescription,
    MirrorChange,
    MirrorStatus,
    StoredMirrorState,
)
from barnabas.client.links.drill import DrillReport, GroupMove
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition

T0 = TopicPartition("orders", 0)
PARIS = Link("paris", "kafka-1:9092", topics=("orders.*",), topics_exclude=("orders-test",))
STATUS = MirrorStatus("paris", T0, "MIRRORING", 100, 7, 1_000, 0, "")
STORED = StoredMirrorState("orders", "0-0", 0, "MIRRORING", 4, -1, -1, "")
DESCRIBED = LinkDescription(PARIS, 1, "", (STORED,))


def test_a_file_of_kafkas_tool_describes_a_link() -> None:
    settings = {
        "bootstrap.servers": "kafka-1:9092",
        "security.protocol": "SSL",
        "mirror.topics.include": "orders.*,payments",
        "mirror.groups.include": ".*",
        "mirror.fetch.max.bytes": "1000000",
    }
    assert link_of("paris", dict(settings), None, "orders-test") == Link(
        "paris",
        "kafka-1:9092",
        {"security.protocol": "SSL"},
        ("orders.*", "payments"),
        ("orders-test",),
        (".*",),
        settings={"mirror.fetch.max.bytes": "1000000"},
    )
    assert link_of("paris", dict(settings), "t", None).topics == ("t",)
    with pytest.raises(ValueError, match=r"bootstrap\.servers is missing"):
        link_of("paris", {}, None, None)


def test_kafkas_tool_describes_the_topics_that_a_pattern_matches() -> None:
    rows: list[dict[str, object]] = [{"topic": topic} for topic in ("orders", "orders-eu", "payments")]
    assert select_topics(rows, []) == rows
    assert select_topics(rows, ["orders.*"]) == rows[:2]
    assert select_topics(rows, ["orders", "pay.*"]) == [rows[0], rows[2]]


def test_a_description_has_the_link_and_its_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    print_described(DESCRIBED, [STATUS])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["topics", "orders.*,", "but", "not", "orders-test"] in lines
    assert ["orders", "0", "MIRRORING", "7", "-", "-", "-"] in lines


def test_refused_topics_have_their_reason(capsys: pytest.CaptureFixture[str]) -> None:
    error = KafkaError(ErrorCode.INVALID_REQUEST, "It is being stopped.")
    print_changes([MirrorChange("orders", "", 1, error), MirrorChange("payments", "paused", 2, None)], dry_run=False)
    lines = [line.strip().split(maxsplit=3) for line in capsys.readouterr().out.splitlines()]
    assert ["orders", "1", "refused", "It is being stopped."] in lines
    assert ["payments", "2", "paused", "-"] in lines


def test_a_drill_says_what_would_be_lost_and_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    moves = (GroupMove("billing", T0, 90, 80, 10),)
    print_drill(DrillReport(DESCRIBED, (STATUS,), 7, 1_500, moves, (), ("orders-0 is PAUSED, not MIRRORING.",)))
    text = capsys.readouterr().out
    assert "would lose 7 records" in text
    assert "1.5 s ago" in text
    assert ["billing", "orders", "0", "90", "80", "10"] in [line.split() for line in text.splitlines()]
    assert "PROBLEM: orders-0 is PAUSED" in text


def test_a_password_that_is_stored_as_it_is_gets_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_plain_secrets({"ssl.key.password": "${env:KEY}", "client.id": "c"})
    assert capsys.readouterr().err == ""
    warn_of_plain_secrets({"ssl.key.password": "hush", "client.id": "c"})
    printed = capsys.readouterr().err
    assert printed.startswith("warning: ssl.key.password: stored as it is in __mirror_state.")
    assert "hush" not in printed
