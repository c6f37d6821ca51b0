"""Two simulated clusters with links between them under random faults: seeds run clean, runs can be replayed."""

from __future__ import annotations

import pytest

from barnabas.testing.sim.mirroring.faults import LinkFaultMenu
from barnabas.testing.sim.mirroring.scenario import MirroringScenario, mirroring
from barnabas.testing.sim.mirroring.share_rules import ShareOffsetsAreInTheLog
from barnabas.testing.sim.outcome import play
from barnabas.testing.sim.world import World


def _played(seed: int, menu: LinkFaultMenu, *, shares: bool = False) -> MirroringScenario:
    world = World(seed)
    scenario = MirroringScenario(world, menu=menu, shares=shares)
    assert play(world, scenario).acknowledged > 0, f"seed {seed}: no record was acknowledged, so the run shows nothing"
    return scenario


def test_a_seed_with_unclean_elections_is_clean() -> None:
    _played(5, LinkFaultMenu.UNCLEAN)  # `make sim SCENARIO=links` plays 200


def test_a_mirror_that_retention_overtakes_counts_what_it_has_never_had() -> None:
    assert _played(3, LinkFaultMenu.RETENTION).skipped_offsets > 0


@pytest.mark.system
@pytest.mark.parametrize(("seed", "menu"), [(4, LinkFaultMenu.DISK), (1, LinkFaultMenu.POWER)])
def test_share_groups_and_records_survive_power_cuts_and_failing_disks(seed: int, menu: LinkFaultMenu) -> None:
    scenario = _played(seed, menu, shares=True)
    offsets = [scenario.watch.rule(site, ShareOffsetsAreInTheLog).compared for site in (scenario.west, scenario.east)]
    assert max(offsets) > 0


@pytest.mark.system
def test_same_seed_has_equal_trace() -> None:
    first, second = (_played(5, LinkFaultMenu.KILL).world.trace for _ in range(2))
    assert first.text() == second.text()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1_000, 1_500, 50))
def test_many_seeds_are_clean(first: int) -> None:
    for seed in range(first, first + 50):
        assert mirroring(seed).acknowledged > 0
