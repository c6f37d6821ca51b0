"""Shell: the process that checks batches of many records. Started by `checker`.

The check of a batch follows the records one by one in Python, up to 0.7 us for each. In a thread of the broker that
would hold the interpreter lock and slow every request down; a batch of a million records takes half a second. The
process starts with the first such batch, and ends after a minute without work or when its broker has ended, which
closes the pipe. It owns nothing that must be saved.

    request:  size of the call, size of the batch (uint32) | the name and arguments of a function, pickled | batch
    response: size (uint32) | the result of the function, or the KafkaError that it raised, pickled
"""

from __future__ import annotations

import os
import pickle
import select
import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.scan import find_timestamp
from barnabas.protocol.records.validate import check

HEAD: Final = Struct(">II")
SIZE: Final = Struct(">I")
_IDLE_S: Final = 60.0
_NICENESS: Final = 5
"""The broker process has priority over its checks."""


FUNCTIONS: Final[dict[str, Callable[..., object]]] = {"check": check, "find_timestamp": find_timestamp}
"""What the process can do. The first argument of each function is the batch."""


def send_batch(descriptor: int, buf: Buffer, function: str, arguments: tuple[Any, ...]) -> None:
    """Write a request to call `function(buf, *arguments)`. Blocks until the other process has read it."""
    call = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
    write_all(descriptor, HEAD.pack(len(call), len(buf)) + call)
    write_all(descriptor, buf)


def receive_answer(descriptor: int) -> Any:
    """The result of a call. Raises the KafkaError that the function raised, and EOFError if the process has ended."""
    answer = pickle.loads(read_all(descriptor, SIZE.unpack(read_all(descriptor, SIZE.size))[0]))
    if isinstance(answer, KafkaError):
        try:
            raise answer
        finally:
            del answer  # else the error and its traceback, whose frames hold the batch, would be a cycle
    return answer


def write_all(descriptor: int, data: Buffer) -> None:
    """Write all of `data` to a pipe."""
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view) :]


def read_all(descriptor: int, size: int) -> bytearray:
    """Read exactly `size` bytes from a pipe. Raises EOFError if the other process has closed it."""
    data = bytearray(size)
    view = memoryview(data)
    while len(view):
        count = os.readv(descriptor, [view])
        if not count:
            raise EOFError
        view = view[count:]
    return data


def work(requests: int, answers: int) -> None:
    """Check batches until the broker closes the pipe, which raises EOFError, or until there was no work for a while."""
    while select.select([requests], [], [], _IDLE_S)[0]:
        call_size, size = HEAD.unpack(read_all(requests, HEAD.size))
        function, arguments = pickle.loads(read_all(requests, call_size))
        batch = read_all(requests, size)
        try:
            answer = FUNCTIONS[function](batch, *arguments)
        except KafkaError as error:
            answer = error
        except (ArithmeticError, AssertionError, LookupError, MemoryError, TypeError, ValueError) as error:
            # a bug, or too little memory: the batch is rejected, and the process continues
            answer = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The batch could not be checked: {error!r}")
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        write_all(answers, SIZE.pack(len(data)) + data)


def main() -> None:
    os.nice(_NICENESS)
    answers = os.dup(sys.stdout.fileno())
    sys.stdout = sys.stderr  # output of a print must not mix with the messages
    try:
        work(sys.stdin.fileno(), answers)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        os._exit(0)  # the broker has closed the pipe


if __name__ == "__main__":
    main()
