"""Shell: runs a cleaning pass in a process of its own (`ProcessEngine`) or in the calling thread (`InlineEngine`).

Both engines have blocking methods and are used from an executor's thread: `begin(task)`, then `next()` until the result
is a `PassDone`. The cleaning code is imported when a pass begins, because many brokers never run one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

from barnabas.core.errors import KafkaError
from barnabas.server.storage.cleaner.errors import CleaningAbortedError, CleaningError
from barnabas.server.storage.cleaner.task import CleaningTask, GroupCleaned, PassDone
from barnabas.server.storage.fs import FileSystem

Step = GroupCleaned | PassDone


class CleanerEngine(Protocol):
    """Port: runs one cleaning pass at a time."""

    def begin(self, task: CleaningTask) -> None: ...

    def next(self) -> Step:
        """Wait for the next cleaned group, or for the result of the pass.

        Call this only when the previous group has been put in place. Raises KafkaError if the pass fails.
        """
        ...

    def stop(self) -> None:
        """Abort the pass and free its resources. May be called from any thread; `next` may then raise KafkaError."""
        ...


class InlineEngine:
    """Cleans in the calling thread, in plain Python, on any `FileSystem`: for simulations and tests."""

    def __init__(self, fs: FileSystem, take: Callable[[int], None] = lambda size: None) -> None:
        self._fs = fs
        self._take = take
        self._stopped = False
        self._steps: Iterator[Step] = iter(())

    def begin(self, task: CleaningTask) -> None:
        from barnabas.server.storage.cleaner.cleaning import CleaningPass

        self._stopped = False
        self._steps = CleaningPass(self._fs, task, take=self._moved).run()

    def _moved(self, size: int) -> None:
        if self._stopped:
            raise CleaningAbortedError("the cleaner was stopped")
        self._take(size)

    def next(self) -> Step:
        return next(self._steps)

    def stop(self) -> None:
        self._stopped = True


class ProcessEngine:
    """Cleans in a process that the first pass starts and `stop` ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._waiting_group = False

    def begin(self, task: CleaningTask) -> None:
        from barnabas.server.replication.cleaning.worker import send

        self._waiting_group = False
        process = self._process
        if process is None or process.poll() is not None:
            command = [sys.executable, "-P", "-m", "barnabas.server.replication.cleaning.worker", str(os.getpid())]
            try:
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as e:
                raise CleaningError(f"the cleaner's process could not be started: {e}") from e
            self._process = process
        assert process.stdin is not None
        try:
            send(process.stdin, task)
        except OSError as e:
            self.stop()
            raise CleaningError(f"the cleaner's process does not accept a task: {e}") from e

    def next(self) -> Step:
        from barnabas.server.replication.cleaning.worker import GO_ON, receive

        process = self._process
        if process is None:
            raise CleaningError("the cleaner was stopped")
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if self._waiting_group:
                process.stdin.write(GO_ON)
                process.stdin.flush()
            answer = receive(process.stdout)
        except (EOFError, OSError, ValueError) as e:
            self.stop()
            raise CleaningError("the cleaner process ended during a pass; check the host's free memory") from e
        self._waiting_group = isinstance(answer, GroupCleaned)
        if isinstance(answer, KafkaError):
            raise answer
        assert isinstance(answer, GroupCleaned | PassDone)
        return answer

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # a kill is safe: the process owns no state that must be saved
            process.wait()
