"""Whatever is killed, a read_committed consumer of the target finds each record of the source once, in order."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.servers import descendants

from barnabas.core.child_processes import start_child
from barnabas.spark.mirror.errors import MirrorError
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.spark.broker import Topics, values
from tests.system.spark.mirror.clusters import Pair, read_all

pytestmark = pytest.mark.system

PARTITIONS = 3
RECORDS_PER_KILL = 150


def feed(source: Topics, topic: str, start: int) -> int:
    """Write numbers, spread over the partitions, some of them in transactions, every third of which is aborted. Returns
    the first number that is not used."""
    for partition in range(PARTITIONS):
        numbers = values(RECORDS_PER_KILL // PARTITIONS, start=start, partition=partition)
        start += len(numbers)
        source.produce(topic, numbers)
        source.transaction(topic, values(4, start=start, partition=partition), commit=start % 3 != 0)
        start += 4
    return start


def check(servers: tuple[str, str], topic: str, copy: str) -> None:
    for partition in range(PARTITIONS):
        sent = [record.value for record in read_all(servers[0], topic, partition)]
        found = [record.value for record in read_all(servers[1], copy, partition)]
        assert found == sent, f"partition {partition}: {len(found)} of {len(sent)} records"


@pytest.mark.timeout(600)
def test_killed_workers_lose_and_double_nothing(pair: Pair, topic: str) -> None:
    """The short form: Spark's Python workers are killed in the middle of micro-batches."""
    copy, rng = f"A.{topic}", random.Random(16)
    pair.source.create(topic, PARTITIONS)
    pair.target.create(copy, PARTITIONS)
    plan = pair.plan({topic: copy}, options={"max.bytes.per.trigger": "3000"})
    start = feed(pair.source, topic, 0)
    failures = []
    while len(failures) < 2:
        with pair.copying(plan) as copier:
            start = feed(pair.source, topic, start)
            for worker in _workers(os.getpid(), rng):
                os.kill(worker, signal.SIGKILL)
            wait_until(
                lambda: copier.failure() is not None or _is_done(pair, plan.topics),
                "the copier fails or is done",
                progress=lambda: len(pair.copied),
            )
            if (failure := copier.failure()) is not None:
                failures.append(failure)
    assert all(isinstance(failure, MirrorError) for failure in failures)
    pair.copy(plan)
    check(pair.servers, topic, copy)


def _is_done(pair: Pair, topics: object) -> bool:
    reached = {copied.partition: copied.next_upstream for copied in pair.copied}
    (topic,) = topics  # type: ignore[misc]
    ends = pair.ends(pair.plan({topic: topic}))
    return all(reached.get(tp, 0) >= end for tp, end in ends.items())


def _workers(pid: int, rng: random.Random) -> list[int]:
    """The Python workers below a process, in random order."""
    found = []
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    rng.shuffle(found)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_drivers_workers_and_brokers_lose_and_double_nothing(tmp_path: Path) -> None:
    rng = random.Random()
    with BrokerProcess(tmp_path / "a") as a, BrokerProcess(tmp_path / "b") as b, _topics(a, b) as (source, target):
        source.create("t", PARTITIONS)
        target.create("A.t", PARTITIONS)
        target.create("offsets", 3, cleanup_policy="compact")
        servers = (a.bootstrap_servers, b.bootstrap_servers)
        start, process = 0, _start(tmp_path, servers)
        for _ in range(20):
            start = feed(source, "t", start)
            _wait_for_some(servers, rng)
            what = rng.choice(("driver", "driver", "workers", "source", "target"))
            print("kill", what, flush=True)
            if what == "driver":
                _kill_all(process)
                process = _start(tmp_path, servers)
            elif what == "workers":
                for worker in _workers(process.pid, rng)[:2]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
            else:
                broker = a if what == "source" else b
                broker.kill()
                broker.start()
        wait_until(
            lambda: _copied(servers) >= _sent(servers),
            "everything is copied",
            progress=lambda: _copied(servers),
        )
        _kill_all(process)
        check(servers, "t", "A.t")


@contextlib.contextmanager
def _topics(a: BrokerProcess, b: BrokerProcess) -> Iterator[tuple[Topics, Topics]]:
    from barnabas.spark.connection import LogClient

    clients = [LogClient({"bootstrap.servers": broker.bootstrap_servers}) for broker in (a, b)]
    yield Topics(a.bootstrap_servers, clients[0]), Topics(b.bootstrap_servers, clients[1])
    for client in clients:
        client.close()


def _start(folder: Path, servers: tuple[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "mirror.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.system.spark.mirror.mirror_process", *servers, "offsets", "t=A.t"]
        return start_child(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver, its JVM and its workers."""
    for pid in (process.pid, *descendants(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _wait_for_some(servers: tuple[str, str], rng: random.Random) -> None:
    """Wait until a random number of further records is copied, or all of them."""
    wanted = min(_copied(servers) + rng.randrange(1, RECORDS_PER_KILL), _sent(servers))
    wait_until(lambda: _copied(servers) >= wanted, "some records are copied", progress=lambda: _copied(servers))


def _copied(servers: tuple[str, str]) -> int:
    return sum(len(read_all(servers[1], "A.t", partition)) for partition in range(PARTITIONS))


def _sent(servers: tuple[str, str]) -> int:
    return sum(len(read_all(servers[0], "t", partition)) for partition in range(PARTITIONS))
