"""Separate hosts on this machine: network namespaces on a bridge (Linux, root, iproute2) that can be partitioned.

A cut is silent, as on a real network: packets to a host are sent to a hardware address that no host has. A cut can be
one-way. Connections stay open until a time-out of one of their ends.

    bridge 10.77.N.254 (this process, and its clients)
       ├── host 1   10.77.N.1
       └── host 2   10.77.N.2 ...
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from types import TracebackType
from typing import Final

_NOWHERE: Final = "02:00:00:00:00:ff"


def missing() -> str | None:
    """The reason why network namespaces cannot be created here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (Debian: iproute2)"
    tried = subprocess.run(["ip", "netns", "add", "barnabas-try"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made here: {tried.stderr.strip()}"
    _ip("netns", "del", "barnabas-try")
    return None


class Hosts:
    """A number of hosts: `with Hosts(3) as hosts: subprocess.Popen([*hosts.inside(1), "program"])`. The first is 1."""

    def __init__(self, count: int) -> None:
        self.numbers = range(1, count + 1)
        self._net = os.getpid() % 250
        self._bridge = f"bnb{os.getpid() % 100_000}"
        self._cuts: set[tuple[int, int]] = set()

    def address(self, host: int) -> str:
        return f"10.77.{self._net}.{host}"

    def inside(self, host: int) -> list[str]:
        """The command that runs another command on that host."""
        return ["ip", "netns", "exec", self._name(host)]

    # ---- cutting

    def cut(self, source: int, destination: int) -> None:
        """Drops all packets from `source` to `destination`, but not those of the other direction."""
        self._cuts.add((source, destination))
        self._neighbour(source, destination, _NOWHERE)

    def part(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Cuts all links between two sets of hosts, in both directions."""
        rest = list(others)
        for one in some:
            for other in rest:
                self.cut(one, other)
                self.cut(other, one)

    def heal(self) -> None:
        """Undoes all cuts."""
        for source, destination in sorted(self._cuts):
            self._neighbour(source, destination, self._hardware(destination))
        self._cuts.clear()

    def _neighbour(self, source: int, destination: int, hardware: str) -> None:
        _ip(
            "-n", self._name(source), "neigh", "replace", self.address(destination),
            "lladdr", hardware, "nud", "permanent", "dev", "eth0",
        )  # fmt: skip

    # ---- making and clearing away

    def __enter__(self) -> Hosts:
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.address(254)}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for host in self.numbers:
                self._make(host)
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def _make(self, host: int) -> None:
        name, outer = self._name(host), f"{self._bridge}-{host}"
        _ip("netns", "add", name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", outer, "master", self._bridge, "up")
        _ip("-n", name, "link", "set", "eth0", "address", self._hardware(host))
        _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _clear(self) -> None:
        for host in self.numbers:
            subprocess.run(["ip", "netns", "del", self._name(host)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    def _name(self, host: int) -> str:
        return f"{self._bridge}-{host}"

    def _hardware(self, host: int) -> str:
        return f"02:00:00:00:{self._net:02x}:{host:02x}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
