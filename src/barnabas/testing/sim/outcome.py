"""Value: a run that went well."""

from __future__ import annotations

from dataclasses import dataclass


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
