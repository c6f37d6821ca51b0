"""Two processes of `barnabas connect serve` on our broker: one is killed, and its connector continues on the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.connectors.worker_takeover import BROKER_SETTINGS, check_takeover

pytestmark = [pytest.mark.system, pytest.mark.spark]


def test_a_killed_worker_is_replaced_and_every_record_is_copied_once(tmp_path: Path) -> None:
    with EmbeddedBroker(BROKER_SETTINGS) as broker:
        check_takeover(broker.bootstrap_servers, tmp_path)
