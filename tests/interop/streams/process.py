"""Shell: a program whose output is read as it comes, so that one may wait for a line of it."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from barnabas.core.child_processes import start_child


class TalkingProcess:
    """A process of which `wait_for` awaits lines. Everything it says also goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.log = log
        self.lines: list[str] = []
        self._spoke = threading.Condition()
        self._silent = False
        self.process = start_child(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.log.open("a") as log:
            for line in self.process.stdout:
                log.write(line)
                log.flush()
                with self._spoke:
                    self.lines.append(line.rstrip("\n"))
                    self._spoke.notify_all()
        with self._spoke:
            self._silent = True
            self._spoke.notify_all()

    def mark(self) -> int:
        """How much it has said; what comes after can be waited for."""
        with self._spoke:
            return len(self.lines)

    def wait_for(self, pattern: str, timeout_s: float, since: int = 0) -> int:
        """Until it says such a line after `since`; gives the mark behind that line. AssertionError if it never does."""
        wanted = re.compile(pattern)
        looked = since

        def said() -> bool:
            nonlocal looked
            while looked < len(self.lines):
                looked += 1
                if wanted.search(self.lines[looked - 1]):
                    return True
            return self._silent

        with self._spoke:
            found = self._spoke.wait_for(said, timeout_s) and looked > since and wanted.search(self.lines[looked - 1])
            assert found, f"never saw {pattern!r} in {self.log}; the last it said:\n" + "\n".join(self.lines[-15:])
            return looked

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self._end(30)

    def stop(self, timeout_s: float) -> int:
        """SIGTERM; gives the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._end(timeout_s)

    def _end(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code
