"""Shell: the client programs that run while faults happen. They record a history, which `barnabas.testing.histories`
checks.

Each program uses a production client on a host of its own: idempotent producers, transactional producers, group members
that commit offsets, consumers with manual assignment, copiers (read, process, write in transactions), share
consumers, and users that come and go. A program that fails is started again, as by a supervisor.
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
