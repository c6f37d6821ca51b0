"""Shell: runs `barnabas serve` as a process of its own, which a test can kill, pause and restart."""

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
from typing import Final, Self

from barnabas.core.child_processes import start_child

START_SECONDS: Final = 120.0
"""A start takes less than a second on a quiet machine; this is the limit on a busy one."""
_READY = re.compile(r"ready: \w+://(?P<address>[\w.:\[\]-]+:\d+)")


class BrokerProcess:
    """`with BrokerProcess(folder) as broker: ...broker.bootstrap_servers`.

    `kill()` is kill -9; a `start()` after that restarts the broker on the same data and the same port. `settings` are
    `name=value` strings as for `barnabas serve -c`. The broker's log goes to `log_path`. `module` is the argument of
    `python -m`, with further arguments that precede `serve ...`. If `settings` contain `listeners`, `port` is not used.
    A node of a cluster is ready only after its registration with the controller, so `launch` all nodes before the first
    `wait_ready`. On Linux the broker gets `death_signal` when the process that started it ends, also by SIGKILL.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Sequence[str] = (),
        port: int = 0,
        module: Sequence[str] = ("barnabas",),
        prefix: Sequence[str] = (),
        processes: int | None = None,
        death_signal: int = signal.SIGKILL,
        config: Path | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log.txt")
        self.settings = list(settings)
        self.config = config
        """A server.properties file with the listeners; None if `settings` or `port` say where the broker listens."""
        self.arguments: list[str] = []
        """Further options of `serve`, for example `--metrics URL`. Set them before the start."""
        self.module = tuple(module)
        self.prefix = tuple(prefix)
        """The command that runs the broker's command, for example `ip netns exec host1`."""
        self.processes = processes
        """The number of brokers that the process runs under its supervision (`--processes`); None without it."""
        self.death_signal = death_signal
        self.port = port
        self.bootstrap_servers = ""
        self.start_seconds = 0.0
        self.process: subprocess.Popen[str] | None = None
        self._launched = 0.0
        self._ready = False
        self._terminated = False

    def start(self, seconds: float = START_SECONDS) -> None:
        """Starts the process, and returns when the broker is ready. Raises as `wait_ready` does."""
        self.launch()
        self.wait_ready(seconds)

    def launch(self) -> None:
        """Starts the process without waiting until the broker is ready."""
        command = self.command()
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        self._launched, self._ready, self._terminated = time.monotonic(), False, False
        with self.log_path.open("a") as log:
            # In a session of its own: Ctrl-C in a terminal must reach the program that runs the nodes, not every node.
            self.process = start_child(
                command, self.death_signal, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )

    def command(self) -> list[str]:
        """The command line of the process."""
        command = [*self.prefix, sys.executable, "-m", *self.module, "serve", "--data-dir", str(self.data_dir)]
        if self.config is not None:
            command += ["--config", str(self.config)]
        elif not any(setting.startswith("listeners=") for setting in self.settings):
            command += ["--listener", f"PLAINTEXT://127.0.0.1:{self.port}"]
        if self.processes is not None:
            command += ["--processes", str(self.processes)]
        for setting in self.settings:
            command += ["-c", setting]
        return [*command, *self.arguments]

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Returns when the broker has reported that it is ready; at once if that was before. Raises RuntimeError with
        the end of the broker's log if the process ends, or is not ready within `seconds` from now."""
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
        raise RuntimeError(f"the broker did not become ready; the end of its log:\n{self.log_path.read_text()[-4000:]}")

    def kill(self) -> None:
        """Kills the process with SIGKILL, and waits until it has ended."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close_output()

    def restart(self, seconds: float = START_SECONDS) -> None:
        """Shuts the broker down cleanly if it runs, and starts it again on the same data and the same address."""
        if self.alive:
            self.resume()
            self.stop()
        self.start(seconds)

    def pause(self) -> None:
        """Stops the process with SIGSTOP. Its connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues a paused process with SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        """Whether the process runs or is paused."""
        return self.process is not None and self.process.poll() is None

    def terminate(self) -> None:
        """Asks the broker to stop cleanly, with SIGTERM, and does not wait. A second call has no effect: a second
        signal would end the broker at once."""
        assert self.process is not None
        if self.process.poll() is None and not self._terminated:
            self._terminated = True
            self.process.send_signal(signal.SIGTERM)

    def stop(self, seconds: float = 30.0) -> int:
        """Shuts the broker down cleanly with SIGTERM, and returns the exit code. Raises subprocess.TimeoutExpired if
        the process has not ended after `seconds`."""
        self.terminate()
        assert self.process is not None
        code = self.process.wait(seconds)
        self._close_output()
        return code

    def _close_output(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def resident_bytes(self) -> int:
        """The current resident memory of the process (Linux only)."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
