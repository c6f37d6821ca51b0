"""Concurrent transactional clients see no forbidden anomaly while the broker is killed and paused.

Brokers with a planted bug prove that the checker finds anomalies: it must find each bug.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.system.anomalies.planted import BUGS
from tests.system.anomalies.run import SETTINGS, Result, run

SEARCH_S = 40.0
"""The time within which a planted bug must be found. Most are found within two seconds."""
MARKS = {
    "zombies-not-fenced": (),
    "acknowledged-before-the-append": (),
    "last-stable-offset-off-by-one": (pytest.mark.system,),
    "every-fifth-marker-lost": (pytest.mark.system,),
    "offsets-committed-before-the-marker": (pytest.mark.system,),
}
"""The bugs that `make test` and `make system` plant, one of each family; `make soak` plants the others."""


def hurt(folder: Path, seconds: float, seed: int) -> Result:
    with BrokerProcess(folder / "data", settings=SETTINGS) as broker:
        result = run(broker, seconds=seconds, seed=seed)
    told = f"seed {seed}, {dict(result.faults)}, history in {result.keep(folder)}\n{result.report}"
    assert not result.broken, f"{result.broken}\n{told}"
    assert result.ended, f"a partition cannot be read to its end\n{told}"
    assert not result.report.forbidden, told
    assert result.report.acknowledged > 100, told
    return result


@pytest.mark.system
def test_no_forbidden_anomaly_under_faults(tmp_path: Path) -> None:
    result = hurt(tmp_path, seconds=12.0, seed=1)
    assert set(result.faults) == {"kill", "stop"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_no_forbidden_anomaly_under_faults_for_minutes(tmp_path: Path, seed: int) -> None:
    result = hurt(tmp_path, seconds=150.0, seed=seed)
    print(f"seed {seed}: {dict(result.faults)}\n{result.report}")


@pytest.mark.slow
def test_no_forbidden_anomaly_without_faults(tmp_path: Path) -> None:
    """Other systems have lost data even without faults (Jepsen on Bufstream, 2024)."""
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        result = run(broker, seconds=60.0, seed=5, faults=())
    assert result.ended
    assert not result.broken
    assert not result.report.forbidden, result.report


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, pytest.mark.slow)) for n in BUGS])
def test_planted_bug_causes_an_expected_anomaly(tmp_path: Path, name: str) -> None:
    bug = BUGS[name]
    module = ("tests.system.anomalies.planted", name)
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS, module=module)
    broker.start()
    try:
        result = run(broker, seconds=SEARCH_S, seed=1, faults=bug.faults, until_found=True)
    finally:
        broker.kill()
    caught = {finding.anomaly for finding in result.report.forbidden}
    assert caught & bug.shows, f"{name} was not caught\n{result.report}"
