"""The one-node simulation finds every planted bug within its number of seeds, with an expected kind of failure."""

from __future__ import annotations

import pytest

from barnabas.testing.sim import SimulationError
from barnabas.testing.sim.torture import torture
from tests.sim.planted import PLANTED, Planted

QUICK = (
    "checksums not compared",
    "no fsync where flush is promised",
    "last stable offset ahead",
    "high watermark off by one",
    "commits kept in memory",
    "a lack of descriptors taken for a failed disk",
)
"""The bugs that `make test` plants, some for each menu of faults; `make system` plants the others."""


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name.replace(" ", "-"), marks=[] if bug.name in QUICK else pytest.mark.system)
        for bug in PLANTED
    ],
)
def test_planted_bug_is_found(bug: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    for seed in range(bug.first, bug.first + bug.seeds):
        try:
            torture(seed, menu=bug.menu)
        except SimulationError as failure:
            assert isinstance(failure, bug.caught_by), failure
            return
    pytest.fail(f"{bug.seeds} seeds did not find: {bug.name}")
