"""Shell: the cleaner process: reads tasks from stdin, cleans, and writes results to stdout. Started by `engine`.

Cleaning has its own process for two reasons. Compaction decodes every record; in a thread of the broker it would hold
the interpreter lock and add milliseconds to every request. Compiled kernels (numba) would also permanently cost the
broker 150 MB. The process starts when a log is due, and ends after a time without work.

The process must not outlive its broker, because the next broker process starts a cleaner for the same files. On Linux
the kernel kills the process with its parent; elsewhere the process checks its parent before each read and write.

A message is its length (uint32, big-endian) and a pickle; both ends are this program. The response to a task is a
sequence of cleaned groups and then the result or the exception. The broker confirms each group with one byte when the
group is in place.
"""

from __future__ import annotations

import os
import pickle
import sys
from struct import Struct
from threading import Event
from typing import IO, Any, Final

from barnabas.core.child_processes import die_with_parent
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
_NICENESS: Final = 5
"""The broker process has priority over the cleaner."""


def send(stream: IO[bytes], message: object) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message. Raises EOFError if the other process has closed the pipe."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    size = LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)  # safe: the peer is this broker or the process that the broker started


def choose_engine() -> EngineFactory:
    """The compiled engine if numpy and numba are installed (`barnabas[columnar]`), otherwise plain Python."""
    try:
        from barnabas.server.storage.cleaner.columns import ColumnarKeys
    except ImportError:
        return PlainKeys
    return ColumnarKeys


def work(tasks: IO[bytes], answers: IO[bytes], engine: EngineFactory, parent: int) -> None:
    """Run tasks until the broker closes the pipe, which raises EOFError."""
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
            # a bug, or too little memory: the failure is reported for this partition, and the process continues
            send(answers, CleaningError(f"the pass failed: {error!r}"))


def main() -> None:
    parent = int(sys.argv[1])
    die_with_parent(parent)
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # output of a print must not mix with the messages
    try:
        work(sys.stdin.buffer, answers, choose_engine(), parent)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the broker has closed the pipe: exit without flushing it


if __name__ == "__main__":
    main()
