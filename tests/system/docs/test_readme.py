"""The blocks of the README about Python and tests, as they are written there."""

from __future__ import annotations

from typing import Any, Final

import confluent_kafka
import pytest

from barnabas.testing.embedded import EmbeddedBroker
from tests.golden.pages.code_blocks import ROOT
from tests.system.pages import run_page

pytestmark = pytest.mark.system

README: Final = ROOT / "README.md"


def test_the_program_of_the_readme_writes_and_reads(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page(README, {"127.0.0.1:9092": servers}, section="## From Python")
    record: Any = names["record"]
    assert (record.topic, record.key, record.value) == ("flights", b"k", b"hello")


def test_the_test_of_the_readme_passes(barnabas_broker: EmbeddedBroker) -> None:
    names = run_page(README, {}, {"confluent_kafka": confluent_kafka}, section="## In a test")
    test: Any = names["test_my_service"]
    test(barnabas_broker)
