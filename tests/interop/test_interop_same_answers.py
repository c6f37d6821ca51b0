"""The same requests to our broker and to Apache Kafka: each field of each answer is the same, or listed with a reason.

`same_answers/talk.py` sends and writes down, `scenarios_*.py` is what is asked, `deliberate.py` where we differ.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.same_answers import (
    scenarios_configs,
    scenarios_groups,
    scenarios_produce,
    scenarios_read,
    scenarios_topics,
    scenarios_transactions,
)
from tests.interop.same_answers.compare import Difference, differences
from tests.interop.same_answers.deliberate import DELIBERATE
from tests.interop.same_answers.talk import Talk

SCENARIOS = (
    *scenarios_topics.SCENARIOS,
    *scenarios_configs.SCENARIOS,
    *scenarios_produce.SCENARIOS,
    *scenarios_read.SCENARIOS,
    *scenarios_groups.SCENARIOS,
    *scenarios_transactions.SCENARIOS,
)
SETTINGS = (
    "node.id=1",
    "num.partitions=1",
    "log.segment.bytes=1048576",
    "group.initial.rebalance.delay.ms=0",
    "offsets.topic.num.partitions=1",
    "offsets.topic.replication.factor=1",
    "transaction.state.log.num.partitions=1",
    "transaction.state.log.replication.factor=1",
    "transaction.state.log.min.isr=1",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
)
"""What `ApacheKafka` sets."""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Ours and theirs."""
    root = tmp_path_factory.mktemp("same-answers")
    (root / "kafka").mkdir()
    with BrokerProcess(root / "ours", settings=SETTINGS) as ours, ApacheKafka(root / "kafka").running() as kafka:
        yield ours.bootstrap_servers, kafka.bootstrap


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_same_answers(addresses: tuple[str, str], scenario: Callable[[Talk], None]) -> None:
    run = secrets.token_hex(4)
    ours, theirs = Talk(addresses[0], run), Talk(addresses[1], run)
    for talk in (ours, theirs):
        scenario(talk)
        talk.hang_up()
    name = scenario.__name__
    found = list(differences(ours.answers, theirs.answers))
    unexplained = [
        difference for difference in found if not any(_explains(row, name, difference) for row in DELIBERATE)
    ]
    assert not unexplained, f"{len(unexplained)} differences:\n" + "\n".join(map(str, unexplained))
    stale = [
        row
        for row in DELIBERATE
        if re.fullmatch(row.scenario, name) and not any(_explains(row, name, difference) for difference in found)
    ]
    assert not stale, f"no longer different: {stale}"


_VERSION = re.compile(r"( \[v\d+\])?( \(\d+\))?$")


def _explains(row: tuple[str, str, str, str], scenario: str, difference: Difference) -> bool:
    label = _VERSION.sub("", difference.label)
    return all(
        re.fullmatch(pattern, text) for pattern, text in zip(row[:3], (scenario, label, difference.path), strict=True)
    )
