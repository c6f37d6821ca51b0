"""The one-node simulation finds every planted bug within its number of seeds, with an expected kind of failure."""

from __future__ import annotations

import pytest

from barnabas.testing.sim import SimulationError
from barnabas.testing.sim.torture import torture
from tests.sim.planted import PLANTED, Planted

SLOW = ("a retried batch is appended again", "recovery without checksums")
"""The bugs that only `make system` plants: finding them takes longer."""


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(bug, id=bug.name.replace(" ", "-"), marks=[] if bug.name not in SLOW else pytest.mark.system)
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
