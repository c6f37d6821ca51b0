"""Value: what a run comes to: an `Outcome` when it went well, else one of the three failures (`judged`)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.core.errors import KafkaError
from barnabas.testing.sim.errors import CorrectnessError, CrashError, LivenessError, SimulationError

if TYPE_CHECKING:
    from barnabas.testing.sim.world import World


@dataclass(frozen=True, slots=True)
class Outcome:
    """What it was about, what it cost, and what came of it."""

    seed: int
    about: str
    simulated_s: float
    cpu_s: float
    """Of the processor: what the machine does beside does not count."""
    steps: int
    faults: int
    acknowledged: int
    transactions: int
    digest: str
    """Of the whole trace: equal for equal seeds."""

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: ok ({self.about}: {self.faults} faults, {self.acknowledged} records acknowledged,"
            f" {self.transactions} transactions, {self.simulated_s:.0f} s in {self.cpu_s:.2f} s) {self.digest[:16]}"
        )


@contextlib.contextmanager
def judged(world: World, what_failed: str) -> Iterator[None]:
    """Says of whatever a scenario raises which kind of failure it is. `what_failed` is said of what comes out of the
    task group that applies faults."""
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
