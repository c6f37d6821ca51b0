"""Three brokers and three controllers, killed, stopped and cut off under work: nothing acknowledged is lost or doubled.

The short form is part of `make test`; `make soak` runs five minutes (BARNABAS_SOAK_SECONDS) and cuts the network, too,
where it may make namespaces. BARNABAS_SEED repeats what was struck, not when.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import threading
import time
from pathlib import Path

import pytest

from barnabas.testing.process_cluster import ClusterProcess
from tests.system.chaos.workload import CODECS, Acknowledged, Administrator, Committer, Writer, create_logs
from tests.system.cluster import hosts as network
from tests.system.cluster.copies import Copies
from tests.system.cluster.nemesis import Nemesis
from tests.system.cluster.readers import Readers

SOAK_S = float(os.environ.get("BARNABAS_SOAK_SECONDS", "300"))
SETTINGS = (
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "min.insync.replicas=2",
    "default.replication.factor=3",
)
GROUP = "committers"
PATIENCE_S = 90.0


@pytest.mark.timeout(600 + SOAK_S)
@pytest.mark.parametrize("seconds", [0.0, pytest.param(SOAK_S, marks=pytest.mark.slow)], ids=["short", "soak"])
def test_a_cluster_keeps_its_promises(tmp_path: Path, seconds: float) -> None:
    seed = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
    why_not = network.missing() if seconds else "the short form only kills"
    with contextlib.ExitStack() as stack:
        hosts = None if why_not else stack.enter_context(network.Hosts(6))
        places = [] if hosts is None else [hosts.address(number) for number in hosts.numbers]
        prefixes = [] if hosts is None else [hosts.inside(number) for number in hosts.numbers]
        cluster = stack.enter_context(
            ClusterProcess(
                tmp_path, brokers=3, controllers=3, hosts=places, prefixes=prefixes, settings=SETTINGS,
                port=0 if hosts is None else 9092,
            )
        )  # fmt: skip
        print(f"seed {seed}: " + _storm(cluster, hosts, random.Random(seed), tmp_path, seconds, strikes_min=3))
        if hosts is None:
            print(f"the network was not cut: {why_not}")


def _storm(
    cluster: ClusterProcess,
    hosts: network.Hosts | None,
    chance: random.Random,
    folder: Path,
    seconds: float,
    *,
    strikes_min: int,
) -> str:
    address = cluster.bootstrap_servers
    create_logs(address, replicas=3)
    acknowledged = Acknowledged()
    writers = [Writer(address, codec, acknowledged) for codec in CODECS]
    committer, administrator = Committer(address, GROUP, "log-none"), Administrator(address, replicas=3)
    copies, readers = Copies(address, folder), Readers(address, "readers", writers[0].topic)
    stop = threading.Event()
    jobs = [committer.run, administrator.run, copies.run, readers.run, readers.run, *(writer.run for writer in writers)]
    workers = [threading.Thread(target=job, args=(stop,)) for job in jobs]
    for worker in workers:
        worker.start()
    nemesis, waits = Nemesis(cluster, hosts, chance), []
    try:
        acknowledged.wait_for_more(100, PATIENCE_S)
        end = time.monotonic() + seconds
        while nemesis.done.total() < strikes_min or time.monotonic() < end:
            nemesis.strike()
            began = time.monotonic()
            acknowledged.wait_for_more(chance.randrange(1, 2000), PATIENCE_S)
            waits.append(time.monotonic() - began)
        cluster.wait_ready()
        acknowledged.wait_for_more(1000, PATIENCE_S)
    finally:
        stop.set()
        for worker in workers:
            worker.join(PATIENCE_S)
    for writer in writers:
        writer.finish(PATIENCE_S)
    records = sum(writer.check(address) for writer in writers)
    read = readers.check(writers[0].sent, PATIENCE_S)
    committer.check(address, GROUP)
    administrator.check(address)
    copied = copies.check()
    return (
        f"{dict(nemesis.done)}; {records} records, {read} read by a group ({readers.again} of them "
        f"again, {readers.rebalances} assignments), {copied} copied in transactions, "
        f"{committer.promised} commits, {len(administrator.created)} topics; until work went on: "
        f"median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s"
    )
