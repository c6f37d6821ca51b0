"""Shell: the engines that copy a topic from one cluster to another, each as a process that a benchmark can measure.

`mirror`   `barnabas mirror run`: MirrorMaker's file, on Spark
`mm2`      Apache's MirrorMaker 2 in dedicated mode, with the same file
`links`    a cluster link of the target, which must be ours: the brokers copy themselves

Another engine is a class with the methods of `Engine`, registered in `ENGINES`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from barnabas.client.admin import AsyncAdmin
from barnabas.client.admin.links import Link
from barnabas.core.child_processes import start_child
from bench.servers import cpu_seconds, descendants

STOP_S: Final = 60
LINK: Final = "bench"
TASKS: Final = 2
MM2_JVM_FLAGS: Final = "-Xms256M -Xmx2G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -Djava.awt.headless=true"
"""Those of kafka-run-class.sh with the heap of connect-mirror-maker.sh."""


@dataclass(frozen=True)
class Route:
    """What is copied: `topic` of the cluster at `source`, to `copy` in the one at `target`. `settings` are lines of
    MirrorMaker's file."""

    source: str
    target: str
    topic: str
    exactly_once: bool
    settings: Sequence[str] = ()

    @property
    def copy(self) -> str:
        """The name of the topic in the target cluster."""
        return f"A.{self.topic}"

    def properties(self) -> str:
        """MirrorMaker's file."""
        lines = [
            "clusters=A,B",
            f"A.bootstrap.servers={self.source}",
            f"B.bootstrap.servers={self.target}",
            "A->B.enabled=true",
            f"A->B.topics={self.topic}",
            "B->A.enabled=false",
            "emit.heartbeats.enabled=false",
            f"tasks.max={TASKS}",
            "replication.factor=1",
            "checkpoints.topic.replication.factor=1",
            "heartbeats.topic.replication.factor=1",
            "offset-syncs.topic.replication.factor=1",
            "offset.storage.replication.factor=1",
            "status.storage.replication.factor=1",
            "config.storage.replication.factor=1",
            "refresh.topics.interval.seconds=5",
            f"exactly.once.source.support={'enabled' if self.exactly_once else 'disabled'}",
            *(["A.consumer.isolation.level=read_committed"] if self.exactly_once else []),
            *self.settings,
        ]
        return "".join(f"{line}\n" for line in lines)


class Engine(Protocol):
    """One run of an engine."""

    name: str
    copies_offsets: bool
    """Whether a record has the same offset in both clusters."""
    copy: str
    """The name of the topic in the target cluster."""

    def __init__(self, folder: Path, route: Route) -> None: ...

    def start(self) -> None: ...

    def cpu_seconds(self) -> float:
        """The processor time of the engine's own processes since the start."""

    def stop(self) -> None: ...


class ProcessEngine:
    """An engine that is a command."""

    name = ""
    copies_offsets = False

    def __init__(self, folder: Path, route: Route) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.copy = route.copy
        self.file = folder / "mm2.properties"
        self.file.write_text(route.properties())
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        with (self.folder / "log.txt").open("ab") as log:
            self.process = start_child(
                self.command(), stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True,
                env=os.environ,
            )  # fmt: skip

    def cpu_seconds(self) -> float:
        assert self.process is not None
        assert self.process.poll() is None, f"{self.name} has ended; see {self.folder / 'log.txt'}"
        total = 0.0
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with contextlib.suppress(OSError):  # the process has ended meanwhile
                total += cpu_seconds(pid)
        return total

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class SparkMirror(ProcessEngine):
    """`barnabas mirror run`."""

    name = "mirror"

    def command(self) -> list[str]:
        master = ["--master", f"local[{TASKS},4]"]
        return [sys.executable, "-m", "barnabas", "mirror", "run", str(self.file), *master, "--status-interval", "0"]


class MirrorMaker(ProcessEngine):
    """Apache's MirrorMaker 2."""

    name = "mm2"

    def command(self) -> list[str]:
        from tests.interop.jars import mirror_classpath

        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        return ["java", *MM2_JVM_FLAGS.split(), "-cp", mirror_classpath(), main, str(self.file)]


class Links:
    """A cluster link. It has no processes of its own: what it uses is in the target's broker."""

    name = "links"
    copies_offsets = True

    def __init__(self, folder: Path, route: Route) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.copy = route.topic
        self._route = route

    def start(self) -> None:
        asyncio.run(self._create())

    async def _create(self) -> None:
        async with AsyncAdmin(bootstrap_servers=self._route.target) as admin:
            await admin.create_link(Link(LINK, self._route.source, topics=(self._route.topic,)))

    def cpu_seconds(self) -> float:
        return 0.0

    def stop(self) -> None:
        """The link ends with its brokers."""


ENGINES: Final[dict[str, Callable[[Path, Route], Engine]]] = {
    "links": Links,
    "mirror": SparkMirror,
    "mm2": MirrorMaker,
}
