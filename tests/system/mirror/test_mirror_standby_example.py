"""The example of a standby cluster, in a short form: failover, failback, and what both have cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from examples.mirroring import active_standby

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.mark.timeout(300)
def test_work_moves_to_the_standby_and_back(tmp_path: Path) -> None:
    report = asyncio.run(active_standby.run(tmp_path, 1.0))
    assert report.show() == 0
    (loss,) = report.losses
    assert loss.acknowledged == loss.mirrored + loss.lost
    assert loss.is_tail
    assert [(move.to_cluster, move.missed) for move in report.moves] == [("berlin", 0), ("paris", 0)]
