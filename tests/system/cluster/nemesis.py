"""What goes wrong with a cluster of real processes: killed, stopped for a while, cut off; one fault after another.

A fault is made, lasts, and is mended; between two of them the cluster gets a moment of peace. What is hit is drawn from
a seed. At most one replica's host is hit at a time, except when everything is killed at once: so the cluster owes us
progress, and every acknowledged record, all the time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

from barnabas.testing.process_cluster import ClusterProcess
from tests.system.cluster.hosts import Hosts

Fault = Callable[[], str]


class Nemesis:
    """`strike` once does one fault from beginning to end, and says what it was."""

    def __init__(self, cluster: ClusterProcess, hosts: Hosts | None, chance: random.Random) -> None:
        self.cluster = cluster
        self.done: Counter[str] = Counter()
        self._hosts = hosts
        self.chance = chance
        self._ids = sorted(cluster.nodes)
        self._faults: list[Fault] = [self._kill, self._kill, self._pause, self._restart, self._kill_all]
        if hosts is not None:
            self._faults += [self._cut_off, self._cut_one_way, self._cut_off]

    def strike(self) -> str:
        fault = self.chance.choice(self._faults)
        said = fault()
        self.done[said.partition(" ")[0]] += 1
        return said

    # ---- processes

    def _kill(self) -> str:
        node_id = self._victim()
        self.cluster.node(node_id).kill()
        self._last(0.1, 5.0)
        self.cluster.node(node_id).launch()
        return f"killed {node_id}"

    def _restart(self) -> str:
        node_id = self._victim()
        self.cluster.node(node_id).stop(60)
        self.cluster.node(node_id).launch()
        return f"restarted {node_id}"

    def _pause(self) -> str:
        node_id = self._victim()
        node = self.cluster.node(node_id)
        node.pause()
        self._last(0.5, 12.0)  # sometimes longer than a session
        node.resume()
        return f"paused {node_id}"

    def _kill_all(self) -> str:
        self.cluster.kill_all()
        for node in self.cluster.nodes.values():
            node.launch()
        return "everything killed"

    # ---- the network

    def _cut_off(self) -> str:
        assert self._hosts is not None
        host, others = self._host()
        self._hosts.part([host], others)
        self._last(1.0, 12.0)
        self._hosts.heal()
        return f"cut-off {self._ids[host - 1]}"

    def _cut_one_way(self) -> str:
        assert self._hosts is not None
        host, others = self._host()
        for other in others:
            self._hosts.cut(*((host, other) if self.chance.random() < 0.5 else (other, host)))
        self._last(1.0, 12.0)
        self._hosts.heal()
        return f"half-deaf {self._ids[host - 1]}"

    # ---- chance

    def _victim(self) -> int:
        return self.chance.choice(self._ids)

    def _host(self) -> tuple[int, list[int]]:
        numbers = range(1, len(self._ids) + 1)
        host = self.chance.choice(numbers)
        return host, [other for other in numbers if other != host]

    def _last(self, low: float, high: float) -> None:
        """Real faults take real time."""
        time.sleep(self.chance.uniform(low, high))
