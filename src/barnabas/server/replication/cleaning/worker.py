"""Shell: the cleaner's own process: takes tasks on stdin, cleans, answers on stdout. Started by `engine`.

A process of its own for two reasons. Compaction opens every record: in a thread of the broker, in plain Python, it
would hold the interpreter's lock and add milliseconds to every request; and compiled kernels (numba) would cost the
broker 150 MB for good. This one starts when there is something to clean, and ends after a while without work.

It must not outlive its broker: the next one would start a cleaner of its own over the same files. On Linux the kernel
sees to that; elsewhere it looks whether its parent is still there, before each read and write.

A message is its length (uint32, big-endian) and a pickle; both ends are this program. The answers to a task are the
groups, each followed by a byte from the broker once it is in place, and then the outcome or the exception.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from contextlib import suppress
from struct import Struct
from threading import Event
from typing import IO, Any, Final

from barnabas.core.clock import SystemClock
from barnabas.core.errors import KafkaError
from barnabas.server.storage.cleaner.cleaning import CleaningPass, EngineFactory
from barnabas.server.storage.cleaner.errors import CleaningError
from barnabas.server.storage.cleaner.keys import PlainKeys
from barnabas.server.storage.cleaner.task import CleaningTask, GroupCleaned
from barnabas.server.storage.cleaner.throttle import Throttle
from barnabas.server.storage.fs import OsFileSystem

LENGTH: Final = Struct(">I")
GO_ON: Final = b"\x01"
_PR_SET_PDEATHSIG: Final = 1
_NICENESS: Final = 5
"""Serving comes first."""


def send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message. Raises EOFError when the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    size = LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)  # only ever between a broker and the process that it has started itself


def choose_engine() -> EngineFactory:
    """Compiled where numpy and numba are installed (`barnabas[columnar]`), plain Python elsewhere."""
    try:
        from barnabas.server.storage.cleaner.columns import ColumnarKeys
    except ImportError:
        return PlainKeys
    return ColumnarKeys


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(0)  # it ended before we asked


def work(tasks: IO[bytes], answers: IO[bytes], engine: EngineFactory, parent: int) -> None:
    """Clean until the broker closes the pipe. Raises EOFError then."""
    fs, clock, never = OsFileSystem(), SystemClock(), Event()
    while True:
        task: CleaningTask = receive(tasks)
        throttle = Throttle(task.config.log_cleaner_io_max_bytes_per_second, clock.monotonic())

        def take(size: int, throttle: Throttle = throttle) -> None:
            if os.getppid() != parent:
                raise EOFError
            wait = throttle.delay(size, clock.monotonic())
            if wait:
                never.wait(wait)

        began = clock.monotonic()
        try:
            for step in CleaningPass(fs, task, engine=engine, take=take).run():
                if isinstance(step, GroupCleaned):
                    send(answers, step)
                    if tasks.read(1) != GO_ON:
                        raise EOFError
                else:
                    step.stats.seconds = clock.monotonic() - began
                    send(answers, step)
        except KafkaError as error:
            send(answers, error)
        except (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError) as error:
            # a defect, or too little memory: this partition is reported, the others go on
            send(answers, CleaningError(f"the pass failed: {error!r}"))


def main() -> None:
    parent = int(sys.argv[1])
    die_with(parent)
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # a stray print must not end up among the answers
    try:
        work(sys.stdin.buffer, answers, choose_engine(), parent)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the broker is done with us; skip the flush of a pipe that nobody reads


if __name__ == "__main__":
    main()
