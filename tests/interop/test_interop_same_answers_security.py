"""The same requests about ACLs and quotas to our broker and to Apache Kafka, both with an authorizer.

As `test_interop_same_answers.py`: each field of each answer is the same, or listed in `deliberate.py` with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.testing.process import BrokerProcess
from tests.interop.apache_kafka import ApacheKafka
from tests.interop.same_answers import scenarios_acls, scenarios_quotas, scenarios_throttling
from tests.interop.same_answers.playing import check_same_answers
from tests.interop.same_answers.talk import Talk

SCENARIOS = (*scenarios_acls.SCENARIOS, *scenarios_quotas.SCENARIOS, *scenarios_throttling.SCENARIOS)
SETTINGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "controller.quota.window.num=10",
    "max.connections.per.ip.overrides=" + ",".join(f"{h}:{n}" for h, n in scenarios_throttling.OVERRIDES.items()),
)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Ours and theirs."""
    root = tmp_path_factory.mktemp("same-answers-security")
    (root / "kafka").mkdir()
    kafka = ApacheKafka(root / "kafka", SETTINGS)
    with BrokerProcess(root / "ours", settings=("node.id=1", *SETTINGS)) as ours, kafka.running():
        yield ours.bootstrap_servers, kafka.bootstrap


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_same_answers_about_security(addresses: tuple[str, str], scenario: Callable[[Talk], None]) -> None:
    check_same_answers(addresses, scenario)
