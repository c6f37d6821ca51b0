"""Shell: what clients do while the world goes wrong, as a history that `barnabas.testing.histories` judges.

Programs of production clients, each on a host of its own: idempotent producers, transactional ones, members of a group
that commit, readers with partitions of their own, copiers (read, process, write in transactions), share consumers. A
program that fails starts anew, as its supervisor would have it.
"""

from __future__ import annotations

from barnabas.testing.sim.workload.supervisor import (
    ATOMIC,
    COPIED,
    GROUP,
    PLAIN,
    TOPICS,
    Mix,
    Workload,
    WorkloadFacts,
    decode,
)

__all__ = ["ATOMIC", "COPIED", "GROUP", "PLAIN", "TOPICS", "Mix", "Workload", "WorkloadFacts", "decode"]
