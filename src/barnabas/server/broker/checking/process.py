"""Shell: the broker's end of the process that checks batches of many records (`worker`)."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import Any, Final

from barnabas.core.buffers import Buffer
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.batch import BatchHeader
from barnabas.protocol.records.validate import Checked, ValidationRules

_F_SETPIPE_SZ: Final = 1031
_PIPE_BYTES: Final = 1 << 20
"""A larger pipe than Linux's 64 KiB: the two processes change turns less often."""
_ATTEMPTS: Final = 2
"""The process may end for want of work while a batch is sent to it."""


class CheckProcess:
    """Checks one batch at a time in a process that the first batch starts and `stop` ends. Methods block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._stopped = False

    def check(self, buf: Buffer, rules: ValidationRules, now_ms: int, limit_bytes: int) -> Checked:
        """`validate.check` in the process. Raises the KafkaError that rejects the batch, or KAFKA_STORAGE_ERROR, which
        producers retry, if the process ends."""
        found = self._call("check", buf, (rules, now_ms, limit_bytes))
        assert isinstance(found, Checked)
        return found

    def find_timestamp(
        self,
        buf: Buffer,
        header: BatchHeader,
        timestamp: int,
        least_offset: int,
        max_decompressed_message_bytes: int,
    ) -> tuple[int, int] | None:
        """`scan.find_timestamp` in the process. Raises as `check` does."""
        arguments = (header, timestamp, least_offset, max_decompressed_message_bytes)
        found: tuple[int, int] | None = self._call("find_timestamp", buf, arguments)
        return found

    def _call(self, function: str, buf: Buffer, arguments: tuple[Any, ...]) -> Any:
        from barnabas.server.broker.checking.worker import receive_answer, send_batch  # needs pickle, so not at start

        with self._lock:
            for attempt in range(1, _ATTEMPTS + 1):
                if self._stopped:
                    break
                process = self._running()
                assert process.stdin is not None
                assert process.stdout is not None
                try:
                    send_batch(process.stdin.fileno(), buf, function, arguments)
                    return receive_answer(process.stdout.fileno())
                except (EOFError, OSError, ValueError) as error:
                    self._end()
                    if attempt == _ATTEMPTS:
                        raise KafkaError(
                            ErrorCode.KAFKA_STORAGE_ERROR,
                            "The process that checks batches ended during a check; check the host's free memory.",
                        ) from error
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The broker stops.")

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is not None and process.poll() is None:
            return process
        command = [sys.executable, "-P", "-m", "barnabas.server.broker.checking.worker"]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The process that checks batches could not be started: {error}"
            ) from error
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):  # not Linux, or the user's pipes have used up their quota
                fcntl.fcntl(pipe.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
        self._process = process
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # a kill is safe: the process owns no state that must be saved
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def stop(self) -> None:
        """End the process. May be called from any thread; `check` may then raise KafkaError."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
