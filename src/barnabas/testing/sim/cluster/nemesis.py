"""Shell: what goes wrong, when and for how long, drawn from the seed: one fault after another, now and then several.

trouble ──── quiet: everything is healed, and must be well again within a bound ──── trouble ──── quiet
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.testing.sim.cluster.directories import DIRECTORY_FAULTS
from barnabas.testing.sim.cluster.disks import DISK_FAULTS
from barnabas.testing.sim.cluster.operator import OPERATIONS
from barnabas.testing.sim.cluster.processes import PROCESS_FAULTS
from barnabas.testing.sim.cluster.trouble import ClusterFault, Trouble
from barnabas.testing.sim.cluster.weather import WEATHER

CATALOGUE: Final = (*PROCESS_FAULTS, *WEATHER, *DISK_FAULTS, *OPERATIONS)
_PAUSE_S: Final = 0.5
"""Between two faults, on average."""
_ALONE: Final = 0.5
"""How often the next fault waits for the end of the one before."""


class Nemesis:
    """`strike` for a while, then `rest`."""

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        catalogue = (*CATALOGUE, *DIRECTORY_FAULTS) if trouble.cluster.layout.directories else CATALOGUE
        self._choices = [fault for fault in catalogue if trouble.menu in fault.menus]
        self.count = 0
        """Faults so far."""

    async def strike(self, seconds: float) -> None:
        """Until that much simulated time has gone by and every fault is over."""
        loop, rng = self._trouble.world.loop, self._trouble.rng
        end = loop.time() + seconds
        weights = [fault.weight for fault in self._choices]
        async with asyncio.TaskGroup() as group:
            while loop.time() < end:
                await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
                fault = rng.choices(self._choices, weights)[0]
                task = group.create_task(self._apply(fault))
                if rng.random() < _ALONE:
                    await asyncio.wait((task,))

    async def _apply(self, fault: ClusterFault) -> None:
        self.count += 1
        self._trouble.world.trace.event("fault", fault.name)
        await fault.strike(self._trouble)

    async def rest(self, within_s: float) -> None:
        """Heal everything. Raises LivenessError when the cluster is not well within that time."""
        self._trouble.world.trace.event("fault", "everything is healed")
        await self._trouble.cluster.heal()
        await self._trouble.cluster.until_well(within_s)
        self._trouble.world.trace.event("fault", "the cluster is well")
