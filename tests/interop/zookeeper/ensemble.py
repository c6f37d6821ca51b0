"""Three ZooKeeper servers of Debian's package, as processes that can be killed and stopped."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_ports

_JAR = Path("/usr/share/java/zookeeper.jar")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TICK_MS = 500
"""Sessions may last from 2 to 20 ticks, 1 to 10 s: short, so that tests need not wait long for the end of one."""
_START_S = 60.0


def why_not() -> str | None:
    """The reason why no ensemble can run here."""
    if not _JAR.exists():
        return "Debian's package zookeeper is not installed (tests/interop/install.sh installs it)"
    return None if shutil.which("java") else "there is no java"


class Ensemble:
    """Three servers on free ports of this machine."""

    def __init__(self, directory: Path) -> None:
        self._ports = [free_ports(3) for _ in range(3)]
        self._homes = [directory / f"server-{number}" for number in (1, 2, 3)]
        self._servers: list[subprocess.Popen[bytes] | None] = [None, None, None]

    @property
    def connect(self) -> str:
        return ",".join(map(self.address, range(3)))

    def address(self, index: int) -> str:
        """Where clients reach this one."""
        return f"127.0.0.1:{self._ports[index][0]}"

    def start(self) -> None:
        peers = [
            f"server.{number}=127.0.0.1:{peer}:{election}"
            for number, (_, peer, election) in enumerate(self._ports, start=1)
        ]
        for index, home in enumerate(self._homes):
            home.mkdir(parents=True)
            (home / "myid").write_text(f"{index + 1}\n")
            lines = [
                f"tickTime={_TICK_MS}", "initLimit=20", "syncLimit=10", f"dataDir={home}",
                f"clientPort={self._ports[index][0]}", "clientPortAddress=127.0.0.1", "admin.enableServer=false",
                "4lw.commands.whitelist=srvr,ruok", "forceSync=no", *peers,
            ]  # fmt: skip
            (home / "zoo.cfg").write_text("\n".join(lines) + "\n")
            (home / "log4j.properties").write_text(
                "log4j.rootLogger=WARN, A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\n"
                "log4j.appender.A.layout=org.apache.log4j.PatternLayout\n"
                "log4j.appender.A.layout.ConversionPattern=%d %p %c %m%n\n"
            )
            self.start_server(index)
        self.wait_for_leader()

    def start_server(self, index: int) -> None:
        home = self._homes[index]
        command = [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", f"{home}:{_JAR}", _MAIN, str(home / "zoo.cfg"),
        ]  # fmt: skip
        with (home / "out.log").open("ab") as out:
            self._servers[index] = start_child(command, stdout=out, stderr=out)

    def kill(self, index: int) -> None:
        server = self._servers[index]
        assert server is not None
        server.kill()
        server.wait()
        self._servers[index] = None

    def pause(self, index: int) -> None:
        server = self._servers[index]
        assert server is not None
        os.kill(server.pid, signal.SIGSTOP)

    def resume(self, index: int) -> None:
        server = self._servers[index]
        assert server is not None
        os.kill(server.pid, signal.SIGCONT)

    def mode(self, index: int) -> str:
        """leader, follower, or nothing while it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self._ports[index][0]), timeout=2) as sock:
                sock.sendall(b"srvr")
                answer = b""
                while chunk := sock.recv(4096):
                    answer += chunk
        except OSError:
            return ""
        modes = [line.split(": ")[1] for line in answer.decode().splitlines() if line.startswith("Mode: ")]
        return modes[0] if modes else ""

    def leader(self) -> int:
        return next(index for index in range(3) if self._servers[index] is not None and self.mode(index) == "leader")

    def wait_for_leader(self) -> None:
        """Asks the servers for their mode until one leads and every other one that runs follows it."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            up = [index for index in range(3) if self._servers[index] is not None]
            modes = [self.mode(index) for index in up]
            if "leader" in modes and all(modes):
                return
            time.sleep(0.2)  # between two requests to other processes, which cannot notify this one
        logs = "\n".join((home / "out.log").read_text()[-2000:] for home in self._homes)
        raise RuntimeError(f"The ZooKeeper servers did not find a leader within {_START_S} s:\n{logs}")

    def stop(self) -> None:
        for server in self._servers:
            if server is not None:
                server.kill()
                server.wait()
