"""Two databases under concurrent writers, captured into topics of our broker; everything is killed in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.system.connectors.capture_faults import BROKER_SETTINGS, run
from tests.system.connectors.mysql_sources import missing_mysql

pytestmark = [pytest.mark.system, pytest.mark.spark]


def test_the_topics_are_the_tables_after_everything_was_killed_once(tmp_path: Path) -> None:
    faults = ("mariadb", "broker", "postgres", "driver")
    with BrokerProcess(tmp_path / "broker", settings=BROKER_SETTINGS) as broker:
        run(tmp_path, broker, broker.bootstrap_servers, faults, seed=1, large=1, pause_s=0.5, copies=False)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_mysql()), reason=missing_mysql())
def test_the_topics_and_copies_are_the_tables_with_mysql_instead_of_mariadb(tmp_path: Path) -> None:
    faults = ("mysql", "driver", "broker", "postgres", "starting driver")
    with BrokerProcess(tmp_path / "broker", settings=BROKER_SETTINGS) as broker:
        run(
            tmp_path, broker, broker.bootstrap_servers, faults,
            seed=3, large=2, pause_s=3.0, copies=True, mysql=True,
        )  # fmt: skip


@pytest.mark.slow
def test_the_topics_are_the_tables_after_many_kills(tmp_path: Path) -> None:
    """About six minutes: each of the four starts of a driver takes one until all four queries have moved on."""
    faults = ("mariadb", "driver", "broker", "postgres", "starting driver", "postgres", "broker", "mariadb")
    with BrokerProcess(tmp_path / "broker", settings=BROKER_SETTINGS) as broker:
        run(tmp_path, broker, broker.bootstrap_servers, faults, seed=2, large=4, pause_s=3.0, copies=True)
