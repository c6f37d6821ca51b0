"""Shell: a real `barnabas serve` in a process of its own, to be talked to, killed and started again."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

_READY = re.compile(r"PLAINTEXT://(?P<address>[\w.:\[\]-]+:\d+)")


class BrokerProcess:
    """`with BrokerProcess(folder) as broker: ...broker.bootstrap_servers`.

    `kill()` is kill -9, `start()` after it restarts on the same data and the same port. `settings` are `name=value`
    strings as for `barnabas serve -c`. What the broker logs goes to `log_path`. `module` is what `python -m` starts: a
    program with arguments of its own that takes `serve ...` behind them.
    """

    def __init__(
        self, data_dir: Path, *, settings: Sequence[str] = (), port: int = 0, module: Sequence[str] = ("barnabas",)
    ) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log.txt")
        self.settings = list(settings)
        self.module = tuple(module)
        self.port = port
        self.bootstrap_servers = ""
        self.start_seconds = 0.0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Returns when the broker says it is ready. Raises RuntimeError with its log when it does not."""
        command = [sys.executable, "-m", *self.module, "serve", "--data-dir", str(self.data_dir)]
        command += ["--listener", f"PLAINTEXT://127.0.0.1:{self.port}"]
        for setting in self.settings:
            command += ["-c", setting]
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self.log_path.open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.bootstrap_servers = self._wait_ready(began + 30.0)
        self.start_seconds = time.monotonic() - began
        self.port = int(self.bootstrap_servers.rsplit(":", 1)[1])

    def _wait_ready(self, deadline: float) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        while time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                line = self.process.stdout.readline()
                if match := _READY.search(line):
                    return match["address"]
                if not line:
                    break
        self.kill()
        raise RuntimeError(f"the broker did not become ready; its log says:\n{self.log_path.read_text()[-4000:]}")

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 30.0) -> int:
        """A clean shutdown (SIGTERM); gives the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def resident_bytes(self) -> int:
        """The process's resident memory now (Linux)."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
