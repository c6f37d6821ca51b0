"""The nodes of a cluster of processes are asked to stop all at once, and waited for afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.testing.process_cluster import ClusterProcess


class Node:
    """A node that records what it is asked for."""

    def __init__(self, name: str, calls: list[str], *, alive: bool = True) -> None:
        self.name = name
        self.alive = alive
        self._calls = calls

    def resume(self) -> None:
        pass

    def terminate(self) -> None:
        self._calls.append(f"ask {self.name}")

    def stop(self, seconds: float) -> int:
        self._calls.append(f"await {self.name}")
        return 0


@pytest.mark.parametrize(
    ("controllers", "expected"),
    [
        (0, ["ask 1", "ask 3", "await 1", "await 3"]),
        (1, ["ask 1", "ask 3", "await 1", "await 3", "ask 4", "await 4"]),
    ],
)
def test_brokers_stop_together_and_controllers_after_them(
    tmp_path: Path, controllers: int, expected: list[str]
) -> None:
    cluster = ClusterProcess(tmp_path, brokers=3, controllers=controllers)
    calls: list[str] = []
    names = {node_id: str(place) for place, node_id in enumerate(sorted(cluster.broker_ids), start=1)}
    others = sorted(set(cluster.nodes) - set(cluster.broker_ids))
    names |= {node_id: str(place) for place, node_id in enumerate(others, start=4)}
    stubs = {node_id: Node(name, calls, alive=name != "2") for node_id, name in names.items()}
    cluster.nodes = stubs  # type: ignore[assignment]
    cluster.stop()
    assert calls == expected
