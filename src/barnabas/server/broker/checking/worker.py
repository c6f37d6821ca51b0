"""Shell: the process that checks batches of many records. Started by `checker`.

The check of a batch follows the records one by one in Python, up to 0.7 us for each. In a thread of the broker that
would hold the interpreter lock and slow every request down; a batch of a million records takes half a second. The
process starts with the first such batch, and ends after a minute without work or when its broker has ended, which
closes the pipe. It owns nothing that must be saved.

    request:  time (int64), limit (int64), size of the rules, size of the batch (uint32) | rules, pickled | batch
    response: size (uint32) | the `Checked`, or the KafkaError that rejects the batch, pickled
"""

from __future__ import annotations

import os
import pickle
import select
import sys
from struct import Struct
from typing import Final

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.validate import Checked, ValidationRules, check

HEAD: Final = Struct(">qqII")
SIZE: Final = Struct(">I")
_IDLE_S: Final = 60.0
_NICENESS: Final = 5
"""The broker process has priority over its checks."""


def send_batch(descriptor: int, buf: Buffer, rules: ValidationRules, now_ms: int, limit_bytes: int) -> None:
    """Write a request for the check of `buf`. Blocks until the other process has read it."""
    described = pickle.dumps(rules, pickle.HIGHEST_PROTOCOL)
    write_all(descriptor, HEAD.pack(now_ms, limit_bytes, len(described), len(buf)) + described)
    write_all(descriptor, buf)


def receive_answer(descriptor: int) -> Checked:
    """The result of a check. Raises the KafkaError that rejects the batch, and EOFError if the process has ended."""
    answer = pickle.loads(read_all(descriptor, SIZE.unpack(read_all(descriptor, SIZE.size))[0]))
    if isinstance(answer, KafkaError):
        raise answer
    assert isinstance(answer, Checked)
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
        now_ms, limit_bytes, rules_size, size = HEAD.unpack(read_all(requests, HEAD.size))
        rules = pickle.loads(read_all(requests, rules_size))
        batch = read_all(requests, size)
        answer: Checked | KafkaError
        try:
            answer = check(batch, rules, now_ms, limit_bytes)
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
