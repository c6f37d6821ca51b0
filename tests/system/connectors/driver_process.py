"""The process of `query_driver`: started, watched, and killed with its JVM and its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.core.child_processes import start_child
from tests.progress import wait_until
from tests.system.connectors.query_driver import STARVED

ROOT = Path(__file__).parents[3]
FIRST_BATCH_S = 600.0
"""A driver that has just started compiles its decoders in the first micro-batch, which a busy machine makes long."""


class Driver:
    """A process that runs queries (see `query_driver`). Its log is FOLDER/driver.log."""

    def __init__(self, folder: Path, queries: list[dict[str, Any]], master: str = "local[4]") -> None:
        self._folder = folder
        self._master = master
        self._names = [query["name"] for query in queries]
        self._process: subprocess.Popen[bytes] | None = None
        self._mode = ""
        self._log_begin = 0
        (folder / "queries.json").write_text(json.dumps(queries))

    def start(self, mode: str) -> None:
        command = [sys.executable, "-m", "tests.system.connectors.query_driver", str(self._folder), mode]
        command.append(self._master)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self._mode = mode
        with (self._folder / "driver.log").open("a") as log:
            self._log_begin = log.tell()
            self._process = start_child(command, start_new_session=True, stdout=log, stderr=log, env=environment)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def batches(self) -> tuple[int, ...]:
        """For each query, how many micro-batches are in its log of commits."""
        logs = (self._folder / name / "commits" for name in self._names)
        return tuple(max((int(one.name) + 1 for one in log.glob("[0-9]*")), default=0) for log in logs)

    def wait_for_batches(self, number: int, failures: Sequence[Exception] = ()) -> None:
        """Return when each query has committed `number` more micro-batches. Fails if the process ends, or if there
        are `failures` meanwhile.
        """
        wanted = [count + number for count in self.batches()]
        wait_until(
            lambda: not self.is_running() or failures or all(map(int.__ge__, self.batches(), wanted)),
            f"each query commits {number} micro-batches",
            progress=self.batches,
            patience_s=FIRST_BATCH_S,
        )
        assert not failures
        assert self.is_running(), f"the driver has failed:\n{self._end_of_log()}"

    def is_running(self) -> bool:
        """Whether the process runs. One that was starved is started again."""
        if self._process is not None and self._process.poll() is None:
            return True
        if self._process is not None and self._process.returncode > 0 and STARVED in self._end_of_log():
            self.kill()
            self.start(self._mode)
            return True
        return False

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def finish(self) -> None:
        """Read all that there is, and end."""
        self.kill()
        self.start("once")
        assert self._process is not None
        wait_until(lambda: not self.is_running(), "the last run ends", progress=self.batches, patience_s=FIRST_BATCH_S)
        assert self._process.returncode == 0, self._end_of_log()

    def _end_of_log(self) -> str:
        with (self._folder / "driver.log").open("rb") as log:
            log.seek(self._log_begin)
            return log.read()[-8000:].decode(errors="replace")
