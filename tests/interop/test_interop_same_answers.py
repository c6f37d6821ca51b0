"""The same requests to our broker and to Apache Kafka: each field of each answer is the same, or listed with a reason.

`same_answers/talk.py` sends and writes down, `scenarios_*.py` is what is asked, `deliberate.py` where we differ.
"""

from __future__ import annotations

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
from tests.interop.same_answers.playing import check_same_answers
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
    check_same_answers(addresses, scenario)
