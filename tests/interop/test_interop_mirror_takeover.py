"""Apache's MirrorMaker 2 and our copier take over from each other, without a gap and without a repeat."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.mirror_engines import MirrorMaker, Route
from bench.servers import descendants

from barnabas.core.child_processes import start_child
from barnabas.spark.connection import LogClient
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.spark.broker import Topics, values
from tests.system.spark.mirror.clusters import read_all

pytestmark = pytest.mark.interop

TOPIC, COPY = "t", "A.t"
PARTITIONS = 3
STEP = 60
MIRROR_MAKERS = (
    "B.offset.flush.interval.ms=500",  # MirrorMaker stores what it has copied, as it does at an orderly end
    "offset.storage.partitions=5",
    "emit.checkpoints.enabled=false",
)


@pytest.mark.timeout(600)
def test_each_continues_where_the_other_stopped(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "a") as a, BrokerProcess(tmp_path / "b") as b:
        servers = (a.bootstrap_servers, b.bootstrap_servers)
        client = LogClient({"bootstrap.servers": servers[0]})
        source = Topics(servers[0], client)
        source.create(TOPIC, PARTITIONS)
        for turn, copying in enumerate((apache, ours, apache, ours)):
            for partition in range(PARTITIONS):
                source.produce(TOPIC, values(STEP, start=turn * STEP, partition=partition))
            with copying(tmp_path / f"{turn}", servers):
                wait_until(lambda turn=turn: count(servers[1]) >= (turn + 1) * STEP * PARTITIONS, "all is copied",  # type: ignore[misc]
                           progress=lambda: count(servers[1]))  # fmt: skip
        client.close()
        for partition in range(PARTITIONS):
            found = [int(record.value or b"") for record in read_all(servers[1], COPY, partition)]
            assert found == list(range(4 * STEP))


def count(servers: str) -> int:
    """The copied records; 0 before the topic exists."""
    client = LogClient({"bootstrap.servers": servers})
    try:
        exists = COPY in client.run(client.cluster.all_topics())
    finally:
        client.close()
    return sum(len(read_all(servers, COPY, partition)) for partition in range(PARTITIONS)) if exists else 0


@contextlib.contextmanager
def apache(folder: Path, servers: tuple[str, str]) -> Iterator[None]:
    """Apache's MirrorMaker 2 runs, and ends in order."""
    engine = MirrorMaker(folder, Route(*servers, TOPIC, exactly_once=False, settings=MIRROR_MAKERS))
    engine.start()
    try:
        yield
    finally:
        engine.stop()


@contextlib.contextmanager
def ours(folder: Path, servers: tuple[str, str]) -> Iterator[None]:
    """Our copier runs, and is killed: what it has copied is stored at any time."""
    folder.mkdir()
    with (folder / "log.txt").open("ab") as log:
        command = [sys.executable, "-m", "tests.system.spark.mirror.mirror_process", *servers]
        process = start_child(
            [*command, "mm2-offsets.A.internal", f"{TOPIC}={COPY}"],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
