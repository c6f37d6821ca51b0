"""Value: one direction between two hosts, as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUTSIDE: Final = "outside"
"""The host of code that belongs to no process: the test."""


@dataclass(slots=True)
class NetworkLink:
    """One direction between two hosts. Seconds, bytes a second, probabilities."""

    delay_min: float = 0.000_1
    delay_max: float = 0.002
    bandwidth: float = 125_000_000.0
    loss: float = 0.0
    """Of a packet; each loss costs a retransmission time-out, doubling from 200 ms."""
    cut: bool = False
