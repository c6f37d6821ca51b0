"""Machine: when the processes of `barnabas serve --processes N` are started, restarted and stopped.

start     All processes are started at once. If one exits before all were ready, the others are stopped too: the
          cause is the configuration or a port in use, and a restart would not help.
restart   A process that exits later is started again after a pause that doubles with each exit in a row.
stop      First the brokers, so that they can hand over the partitions that they lead; then the first process, which
          is the controller. A second request to stop kills all processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

_PAUSE_MIN_S: Final = 0.5
_PAUSE_MAX_S: Final = 30.0
_STABLE_S: Final = 60.0
"""A process that ran for this time does not count as failing in a row."""


class ProcessAction(Enum):
    """What the supervisor does with a process."""

    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


class _State(Enum):
    WAITING = "waiting for its next start"
    RUNNING = "running"
    STOPPING = "sent SIGTERM"
    ENDED = "ended, and not started again"


@dataclass(slots=True)
class _Supervised:
    state: _State = _State.WAITING
    start_at: float = 0.0
    started_at: float = 0.0
    ready: bool = False
    exits_in_a_row: int = 0
    killed: bool = False


@dataclass(slots=True)
class Supervision:
    """The decisions for `count` processes, which have the numbers 0 to `count` - 1. Times are seconds of one clock."""

    count: int
    exit_code: int | None = None
    """The exit code of the supervisor; None while a process runs or is to be started."""
    stopping: bool = False
    was_ready: bool = False
    """Whether all processes have been ready at the same time."""
    _kill: bool = False
    _failed: int = 0
    _processes: list[_Supervised] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._processes = [_Supervised() for _ in range(self.count)]

    def on_ready(self, place: int) -> None:
        self._processes[place].ready = True
        self.was_ready = self.was_ready or all(process.ready for process in self._processes)

    def on_exit(self, place: int, code: int, now: float) -> float | None:
        """A process has exited with `code`. Returns the seconds until it is started again, None if it is not."""
        process = self._processes[place]
        process.ready = False
        if self.stopping or not self.was_ready:
            self._failed = self._failed or (code if code > 0 else int(code < 0 or not self.stopping))
            self.stopping = True
            process.state = _State.ENDED
            return None
        stable = now - process.started_at >= _STABLE_S
        process.exits_in_a_row = 1 if stable else process.exits_in_a_row + 1
        pause: float = min(_PAUSE_MIN_S * 2 ** (process.exits_in_a_row - 1), _PAUSE_MAX_S)
        process.state, process.start_at = _State.WAITING, now + pause
        return pause

    def on_stop(self) -> None:
        """The user asks to stop; asking a second time kills the processes."""
        self._kill = self.stopping
        self.stopping = True

    def poll(self, now: float) -> list[tuple[int, ProcessAction]]:
        """What is to be done now, as (number of the process, action)."""
        actions = self._stop() if self.stopping else self._start(now)
        if all(process.state is _State.ENDED for process in self._processes):
            self.exit_code = self._failed
        return actions

    def next_start_at(self) -> float | None:
        """When `poll` is due without an event."""
        waiting = [process.start_at for process in self._processes if process.state is _State.WAITING]
        return None if self.stopping else min(waiting, default=None)

    def _start(self, now: float) -> list[tuple[int, ProcessAction]]:
        actions = []
        for place, process in enumerate(self._processes):
            if process.state is _State.WAITING and process.start_at <= now:
                process.state, process.started_at = _State.RUNNING, now
                actions.append((place, ProcessAction.START))
        return actions

    def _stop(self) -> list[tuple[int, ProcessAction]]:
        actions = []
        for place, process in reversed(list(enumerate(self._processes))):
            if process.state is _State.WAITING:
                process.state = _State.ENDED
            alive = process.state in (_State.RUNNING, _State.STOPPING)
            if alive and self._kill and not process.killed:
                process.killed = True
                process.state = _State.STOPPING
                actions.append((place, ProcessAction.KILL))
            elif process.state is _State.RUNNING and (place > 0 or self._others_ended()):
                process.state = _State.STOPPING
                actions.append((place, ProcessAction.TERMINATE))
        return actions

    def _others_ended(self) -> bool:
        return all(process.state is _State.ENDED for process in self._processes[1:])
