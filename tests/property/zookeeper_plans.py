"""What goes wrong in the seeded world of `zookeeper_world.py`, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

TIMEOUT_MS = 3_000
"""Of a session."""


@dataclass(frozen=True, slots=True)
class Plan:
    nodes: int = 3
    storm_ms: int = 40_000
    calm_ms: int = 30_000
    propose_every_ms: int = 60
    drop: float = 0.03
    pause: float = 0.008
    restart: float = 0.004
    server: float = 0.006
    cut: float = 0.0
    """A server loses its leader, and answers reads until it notices."""
    snapshot: float = 0.02
    late: float = 0.005
    resign: float = 0.005
    delay_ms: int = 30
    stuck_ms: int = 50
    """How long a request may wait in the client before it is written."""
    tick_ms: int = 0
    """Twice in a tick a server tells the leader which sessions it has heard; 0: at once."""
    overtaken: float = 0.0
    """How often an answer comes although its connection is lost: news of the session overtook it."""
    watch_ms: int = 30
    chunk_bytes: int = 600
    entries_at_once: int = 5


STORMY = Plan(storm_ms=20_000, calm_ms=20_000, propose_every_ms=100)
ZOMBIES = replace(
    STORMY, storm_ms=30_000, propose_every_ms=400, stuck_ms=600, pause=0.03, drop=0.01, restart=0, resign=0, snapshot=0
)
"""Requests wait long in the clients of nodes that are stopped."""
RESIGNING = replace(STORMY, storm_ms=30_000, propose_every_ms=150, delay_ms=60, watch_ms=2_000, resign=0.05, pause=0)
"""Controllers come and go in order, and watches tell of it late."""
CUT = replace(
    STORMY, storm_ms=30_000, propose_every_ms=3_000, cut=0.02, tick_ms=300, drop=0.004, restart=0, server=0, snapshot=0
)
"""Servers lose their leader, and go on to answer reads; there is little to write."""
OVERTAKEN = replace(STORMY, propose_every_ms=400, storm_ms=40_000, overtaken=0.05, drop=0.1, pause=0)
"""Sessions and connections change before the answers of the earlier ones are heard."""
SNAPPY = replace(STORMY, propose_every_ms=60, delay_ms=20, chunk_bytes=8_000, snapshot=0.4, drop=0.1, restart=0)
