"""Processes that tests, benchmarks and `cluster up` start end with the process that started them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.core.child_processes import start_child
from tests.progress import STANDSTILL_S

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a child of its parent")

CHILD = "[sys.executable, '-c', 'import time; time.sleep(600)']"
PARENTS = {
    "start_child": f"""
import sys
from barnabas.core.child_processes import start_child
pids = [start_child({CHILD}).pid]
""",
    "BrokerProcess": """
import sys
from pathlib import Path
from barnabas.testing.process import BrokerProcess
broker = BrokerProcess(Path(sys.argv[1]) / "data")
broker.start()
pids = [broker.process.pid]
""",
    "ClusterProcess": """
import sys
from pathlib import Path
from barnabas.testing.process_cluster import ClusterProcess
cluster = ClusterProcess(Path(sys.argv[1]), brokers=2)
cluster.start()
pids = [node.process.pid for node in cluster.nodes.values()]
""",
}
THEN_WAIT = "print(*pids, flush=True)\nsys.stdin.read()\n"


def is_running(pid: int) -> bool:
    """Whether the process has not ended. A process that nobody has waited for has ended, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_ended(pids: list[int]) -> list[int]:
    """The processes that still run after a long time."""
    deadline = time.monotonic() + STANDSTILL_S
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)  # a process that is not a child of this one cannot be waited for
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.mark.parametrize("parent", PARENTS)
def test_children_end_when_their_parent_is_killed(parent: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENTS[parent] + THEN_WAIT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert pids
        assert all(is_running(pid) for pid in pids)
        process.kill()
    assert wait_ended(pids) == []


def test_child_survives_the_thread_that_started_it() -> None:
    started: list[subprocess.Popen[bytes]] = []
    starting = threading.Thread(target=lambda: started.append(start_child([sys.executable, "-c", "input()"], stdin=-1)))
    starting.start()
    starting.join()
    with started[0] as child:
        assert child.stdin is not None
        child.stdin.write(b"\n")
    assert child.returncode == 0


def test_start_child_raises_what_popen_raises(tmp_path: Path) -> None:
    starts: list[Callable[..., subprocess.Popen[bytes]]] = [subprocess.Popen, start_child]
    for start in starts:
        with pytest.raises(FileNotFoundError):
            start([str(tmp_path / "missing")])


def test_a_child_runs_no_finalizer_of_a_thread_of_its_parent() -> None:
    """As py4j's, by which a Spark driver lost the connection of its main thread to the JVM when a broker started."""
    here, there = socket.socketpair()

    class ShutsDown:
        def __del__(self) -> None:
            here.shutdown(socket.SHUT_RDWR)  # reaches the socket of the parent, too

    local = threading.local()
    local.connection = ShutsDown()
    with here, there:
        assert start_child([sys.executable, "-c", ""]).wait() == 0
        here.sendall(b"still open")
        assert there.recv(100) == b"still open"
        del local.connection


def test_a_child_has_the_signals_and_arguments_that_popen_gives() -> None:
    show = "import sys; print(sys.argv[1:], [line for line in open('/proc/self/status') if line.startswith('Sig')][2:])"
    command = [sys.executable, "-c", show, "-x", "two words"]
    starts: list[Callable[..., subprocess.Popen[bytes]]] = [subprocess.Popen, start_child]
    with starts[0](command, stdout=-1) as by_popen, starts[1](command, stdout=-1) as by_us:
        assert by_us.args == command
        assert by_us.communicate() == by_popen.communicate()
