"""Shell: applies faults to a cluster at times and for durations that the seed decides, sometimes several at once.

strike: faults ──── rest: all is healed, and the cluster must be healthy within a bound ──── strike ──── rest

Beside the faults, a broker's connections to the active controller are reset now and then, so that the controller has to
find out whether the broker still runs; and some runs have a rare fault.
"""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.testing.sim.cluster.directory_faults import DIRECTORY_FAULTS
from barnabas.testing.sim.cluster.disk_faults import DISK_FAULTS
from barnabas.testing.sim.cluster.fault_context import ClusterFault, FaultContext, RareFault
from barnabas.testing.sim.cluster.network_faults import LATE_JOINER, LATE_PROPOSAL, ONE_WAY, WEATHER
from barnabas.testing.sim.cluster.operator_actions import OPERATIONS
from barnabas.testing.sim.cluster.process_faults import LATE_MARKER, PROCESS_FAULTS
from barnabas.testing.sim.cluster.rot_faults import BIT_ROT, LOST_TOPIC_ID

CATALOGUE: Final = (*PROCESS_FAULTS, *WEATHER, *DISK_FAULTS, *OPERATIONS)
RARE: Final = (
    RareFault(LATE_PROPOSAL, 0.4),
    RareFault(ONE_WAY, 0.4),
    RareFault(BIT_ROT, 0.3),
    RareFault(LATE_JOINER, 0.3),
    RareFault(LATE_MARKER, 0.3),
    RareFault(LOST_TOPIC_ID, 0.2),
)
_PAUSE_S: Final = 0.5
"""The mean of the seconds between two faults."""
_RESET_S: Final = 3.0
"""The mean of the seconds between two resets of connections to the active controller."""
_ALONE: Final = 0.5
"""The probability that a fault waits until the previous fault is over."""


class Nemesis:
    """Applies faults to a cluster: `strike` for some time, then `rest`."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        catalogue = (*CATALOGUE, *DIRECTORY_FAULTS) if context.cluster.layout.directories else CATALOGUE
        self._choices = [fault for fault in catalogue if context.menu in fault.menus]
        self._rare = [
            (rare.fault, rng)
            for rare in RARE
            if context.menu in rare.fault.menus
            and (rng := context.world.random_stream(rare.fault.name)).random() < rare.share
        ]
        self.count = 0
        """The number of faults so far."""

    async def strike(self, seconds: float) -> None:
        """Applies faults for that many simulated seconds. Returns when every fault is over."""
        loop, rng = self._context.world.loop, self._context.rng
        end = loop.time() + seconds
        weights = [fault.weight for fault in self._choices]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reset_connections(end))
            for rare, when in self._rare:
                group.create_task(self._apply(rare, after_s=when.uniform(0.0, seconds)))
            while loop.time() < end:
                await asyncio.sleep(rng.expovariate(1 / _PAUSE_S))
                fault = rng.choices(self._choices, weights)[0]
                task = group.create_task(self._apply(fault))
                if rng.random() < _ALONE:
                    await asyncio.wait((task,))

    async def _reset_connections(self, end: float) -> None:
        """Resets the connections of a broker to the active controller now and then, until the loop's time is `end`."""
        cluster, world = self._context.cluster, self._context.world
        rng = world.random_stream("resets")
        while True:
            await asyncio.sleep(rng.expovariate(1 / _RESET_S))
            if world.loop.time() >= end:
                return
            broker, controller = rng.choice(cluster.brokers), cluster.active_controller()
            if controller is not None and controller is not broker:
                world.trace.event("fault", f"{broker.name} loses its connections to {controller.name}")
                world.network.reset_connections(broker.name, controller.name)

    async def _apply(self, fault: ClusterFault, *, after_s: float = 0.0) -> None:
        if after_s:
            await asyncio.sleep(after_s)
        self.count += 1
        self._context.world.trace.event("fault", fault.name)
        await fault.strike(self._context)

    async def rest(self, within_s: float) -> None:
        """Undoes all faults. Raises LivenessError if the cluster is not healthy within `within_s`."""
        self._context.world.trace.event("fault", "everything is healed")
        await self._context.cluster.heal()
        await self._context.cluster.until_well(within_s)
        self._context.world.trace.event("fault", "the cluster is well")
