"""Shell: runs a scenario in a world. A run returns a `ScenarioResult`, or raises one of the three kinds of failure."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from barnabas.core.errors import KafkaError
from barnabas.testing.sim.errors import CorrectnessError, CrashError, LivenessError, SimulationError
from barnabas.testing.sim.workload import WorkloadFacts
from barnabas.testing.sim.world import World, run_world

_LONGEST_S = 3_600.0
"""Simulated seconds after which a scenario counts as hanging."""


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The parameters, the cost and the counts of one successful run."""

    seed: int
    about: str
    simulated_s: float
    cpu_s: float
    """CPU time of this process; other work on the machine does not count."""
    steps: int
    faults: int
    acknowledged: int
    transactions: int
    digest: str
    """A hash of the whole trace; equal for equal seeds."""

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: ok ({self.about}: {self.faults} faults, {self.acknowledged} records acknowledged,"
            f" {self.transactions} transactions, {self.simulated_s:.0f} s in {self.cpu_s:.2f} s) {self.digest[:16]}"
        )


class Scenario(Protocol):
    """A scenario that `play` can run: `Torture` of one node, `Storm` of a cluster, or `Mirroring` of two."""

    @property
    def facts(self) -> WorkloadFacts: ...

    @property
    def about(self) -> str:
        """The parameters that were drawn from the seed, in a few words."""
        ...

    @property
    def fault_count(self) -> int: ...

    async def run(self) -> None: ...


def play(world: World, scenario: Scenario) -> ScenarioResult:
    """Runs `scenario` in `world` and returns its parameters and counts.

    Raises CrashError, LivenessError or CorrectnessError, with the seed and the end of the trace in its notes.
    """
    began = time.process_time()
    run_world(world, lambda _: scenario.run(), within_s=_LONGEST_S)
    facts = scenario.facts
    return ScenarioResult(
        world.seed,
        scenario.about,
        world.elapsed_s,
        time.process_time() - began,
        world.loop.steps,
        scenario.fault_count,
        facts.acknowledged,
        facts.transactions,
        world.trace.digest(),
    )


@contextlib.contextmanager
def judged(world: World, what_failed: str) -> Iterator[None]:
    """Converts the exceptions of a scenario to one of the three kinds of failure. `what_failed` begins the message for
    an exception of the task group that applies faults."""
    try:
        yield
    except ExceptionGroup as group:
        error = _first_of(group)
        if isinstance(error, SimulationError):
            raise error from group
        raise CrashError(f"{what_failed}: {error!r}") from error
    except KafkaError as error:
        if world.crashes:
            raise
        if not error.retriable:
            raise CorrectnessError(f"A healthy cluster answered with {error!r}.") from error
        raise LivenessError(f"A healthy cluster did not answer in time: {error}") from error


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
