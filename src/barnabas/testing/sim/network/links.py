"""Value: the present properties of one direction between two hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUTSIDE: Final = "outside"
"""The host name of code that belongs to no simulated process, which is the test."""


@dataclass(slots=True)
class NetworkLink:
    """One direction between two hosts. Delays are in seconds, `bandwidth` is in bytes per second."""

    delay_min: float = 0.000_1
    delay_max: float = 0.002
    bandwidth: float = 125_000_000.0
    loss: float = 0.0
    """The probability that a packet is lost. Each loss costs a retransmission time-out, which doubles from 200 ms."""
    cut: bool = False
