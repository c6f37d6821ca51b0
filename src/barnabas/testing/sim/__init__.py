"""Simulates a world in one process: production nodes and clients on a seeded loop, network and disk, in virtual time.

from barnabas.testing import sim

async def scenario(world: sim.World) -> None:
    broker = await world.start_broker({"log.retention.ms": "3600000"})
    ...

sim.run(scenario, seed=7)
"""

from __future__ import annotations

from barnabas.testing.sim.errors import (
    CorrectnessError,
    CrashError,
    LivenessError,
    RealWorldError,
    SimulationError,
)
from barnabas.testing.sim.node import SimNode
from barnabas.testing.sim.process import Process
from barnabas.testing.sim.world import World, run

__all__ = [
    "CorrectnessError",
    "CrashError",
    "LivenessError",
    "Process",
    "RealWorldError",
    "SimNode",
    "SimulationError",
    "World",
    "run",
]
