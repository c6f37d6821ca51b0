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

_READY = re.compile(r"ready: \w+://(?P<address>[\w.:\[\]-]+:\d+)")


class BrokerProcess:
    """`with BrokerProcess(folder) as broker: ...broker.bootstrap_servers`.

    `kill()` is kill -9, `start()` after it restarts on the same data and the same port. `settings` are `name=value`
    strings as for `barnabas serve -c`. What the broker logs goes to `log_path`. `module` is what `python -m` starts: a
    program with arguments of its own that takes `serve ...` behind them. Where `settings` name the listeners, `port` is
    not used. Ready is a node of a cluster when the cluster has taken it in, so `launch` all of them before you wait.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Sequence[str] = (),
        port: int = 0,
        module: Sequence[str] = ("barnabas",),
        prefix: Sequence[str] = (),
    ) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log.txt")
        self.settings = list(settings)
        self.module = tuple(module)
        self.prefix = tuple(prefix)
        """Words before the command: `ip netns exec host1`."""
        self.port = port
        self.bootstrap_servers = ""
        self.start_seconds = 0.0
        self.process: subprocess.Popen[str] | None = None
        self._launched = 0.0
        self._ready = False

    def start(self, seconds: float = 30.0) -> None:
        """Returns when the broker says it is ready. Raises RuntimeError with its log when it does not."""
        self.launch()
        self.wait_ready(seconds)

    def launch(self) -> None:
        """Start the process; `wait_ready` comes next."""
        command = self.command()
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._launched, self._ready = time.monotonic(), False
        with self.log_path.open("a") as log:
            # In a session of its own: Ctrl-C in a terminal is for the program that runs the nodes, not for each node.
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )

    def command(self) -> list[str]:
        """What is run: the words of a command line."""
        command = [*self.prefix, sys.executable, "-m", *self.module, "serve", "--data-dir", str(self.data_dir)]
        if not any(setting.startswith("listeners=") for setting in self.settings):
            command += ["--listener", f"PLAINTEXT://127.0.0.1:{self.port}"]
        for setting in self.settings:
            command += ["-c", setting]
        return command

    def wait_ready(self, seconds: float = 30.0) -> None:
        """Returns at once if it has been ready since it was launched. Raises RuntimeError with the end of its log when
        it ends, or takes longer than `seconds` from now."""
        if self._ready:
            return
        self.bootstrap_servers = self._wait_ready(time.monotonic() + seconds)
        self._ready = True
        self.start_seconds = time.monotonic() - self._launched
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

    def pause(self) -> None:
        """SIGSTOP: it does nothing, and its connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """The process runs (or is paused)."""
        return self.process is not None and self.process.poll() is None

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
