"""Shell: a standalone Spark cluster on this host: one master and some workers, each a process of its own.

`spark-class` of the installed PySpark starts them; no download and no SPARK_HOME is needed. On real hosts, start the
same two classes, or `sbin/start-master.sh` and `sbin/start-worker.sh`, with the same environment (docs/SPARK.md).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

import pyspark

from barnabas.spark.environment import prepare_environment

START_SECONDS: Final = 240.0
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


class StandaloneSpark:
    """`with StandaloneSpark(folder, workers=2) as cluster: ...master(cluster.url)`.

    The logs and the work directories are in `folder`. With `hosts_differ`, each worker has its own address (127.0.0.1,
    127.0.0.2, ...; Linux), because Spark never runs a speculative attempt on the host of the first one.
    """

    def __init__(
        self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g", hosts_differ: bool = False
    ) -> None:
        self.folder = folder
        self.url = ""
        self._cores = cores
        self._memory = memory
        self._hosts = [f"127.0.0.{1 + number * hosts_differ}" for number in range(workers)]
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneSpark:
        prepare_environment()
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._start("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._wait_for("master", r"Starting Spark master at (spark://\S+)")
            for number, host in enumerate(self._hosts):
                name = f"worker-{number}"
                work = str(self.folder / name)
                limits = ("--cores", str(self._cores), "--memory", self._memory)
                self._start(name, _WORKER, "--host", host, "--webui-port", "0", "--work-dir", work, *limits, self.url)
            for number in range(len(self._hosts)):
                self._wait_for(f"worker-{number}", r"Successfully registered with (master)")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the workers, then the master. A worker ends its executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def executors(self) -> list[int]:
        """The process ids of the executors on this host (Linux)."""
        workers = {process.pid for process in self._processes[1:]}
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and _EXECUTOR in (entry / "cmdline").read_bytes():
                    parent = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1])
                    if parent in workers:
                        found.append(int(entry.name))
            except (OSError, ValueError):
                continue  # the process has ended
        return sorted(found)

    def kill_executor(self) -> int:
        """Kill one executor with SIGKILL, and return its process id. The worker starts another one."""
        pid = self.executors()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def _start(self, name: str, *command: str) -> None:
        settings: Mapping[str, str] = {
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
        }
        with self._log(name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [f"{settings['SPARK_HOME']}/bin/spark-class", *command],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **settings},
                )
            )

    def _wait_for(self, name: str, pattern: str) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, self._log(name).read_text(errors="replace"))
            if found:
                return found[1]
            if self._processes[-1].poll() is not None:
                break
            time.sleep(0.2)
        raise RuntimeError(f"the Spark {name} did not start; see {self._log(name)}")

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
