"""Table: how a simulated run can fail. Three different things, so that nobody takes one for another.

SimulationError
  CrashError         code raised what nobody handles: a node ended by itself, a callback or a handler blew up
  LivenessError      something that must happen did not: no progress although everything is healthy again
  CorrectnessError   something happened that never may: a lost, doubled, reordered or invented record
RealWorldError         simulated code reached for a real file, socket, thread or process
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class SimulationError(BarnabasError):
    """A simulated run failed; the run's seed and history are in the message."""


class CrashError(SimulationError):
    """An exception that nobody handled."""


class LivenessError(SimulationError):
    """What had to happen did not, in simulated time that was more than enough."""


class CorrectnessError(SimulationError):
    """What must never happen did."""


class RealWorldError(BarnabasError):
    """Simulated code tried to leave its world: then a replay would not be one."""
