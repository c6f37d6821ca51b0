"""The examples of mirrored clusters, in short forms: a spoke or a region dies, and comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from examples.mirroring import active_active, hub_and_spoke
from examples.mirroring.accounts import Report

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_a_spoke_dies_and_comes_back(tmp_path: Path) -> None:
    report = asyncio.run(hub_and_spoke.run(tmp_path, 2.0))
    check(report)
    assert [move.to_cluster for move in report.moves] == ["hub"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("identity", [False, True], ids=["prefixed", "identity"])
def test_a_region_dies_and_comes_back(tmp_path: Path, identity: bool) -> None:
    report = asyncio.run(active_active.run(tmp_path, 2.0, identity=identity))
    check(report)
    assert [move.to_cluster for move in report.moves] == ["east", "west"]


def check(report: Report) -> None:
    assert report.show() == 0
    (loss,) = report.losses
    assert loss.acknowledged == loss.mirrored + loss.lost
    assert loss.is_tail
    assert all(move.missed == 0 for move in report.moves)
