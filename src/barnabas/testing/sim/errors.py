"""Table: the ways in which a simulated run can fail. The three kinds of SimulationError are kept apart.

SimulationError
  CrashError         an exception was not handled: a node ended by itself, or a callback or request handler failed
  LivenessError      a required event did not happen: no progress, although all faults are healed
  CorrectnessError   a forbidden event happened: a lost, duplicated, reordered or invented record
RealWorldError         simulated code used a real file, socket, thread or process
"""

from __future__ import annotations

from barnabas.core.errors import BarnabasError


class SimulationError(BarnabasError):
    """A simulated run failed. The exception's notes have the seed and the end of the trace."""


class CrashError(SimulationError):
    """Simulated code did not handle an exception: a node ended by itself, or a callback or request handler failed."""


class LivenessError(SimulationError):
    """A required event did not happen within ample simulated time."""


class CorrectnessError(SimulationError):
    """A forbidden event happened."""


class RealWorldError(BarnabasError):
    """Simulated code used something real. The run could then not be replayed."""
