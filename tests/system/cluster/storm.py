"""Shell: three brokers and three controllers under load and faults; at the end every acknowledgement is checked.

The load is a producer for each codec, a group that reads, a group that only commits offsets, an administrator, and a
copier for each client under test. Every acknowledgement must hold, and the load must make progress after each fault.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import STANDSTILL_S
from tests.system.chaos.workload import CODECS, Acknowledged, Administrator, Committer, Writer, create_logs
from tests.system.cluster import hosts as network
from tests.system.cluster.copies import Copies
from tests.system.cluster.nemesis import Nemesis
from tests.system.cluster.readers import Readers
from tests.system.transactions.exactly_once import Command

SETTINGS: Final = (
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "min.insync.replicas=2",
    "default.replication.factor=3",
)
GROUP: Final = "committers"


def storm(
    folder: Path, copiers: Mapping[str, Command], *, seed: int, seconds: float, strikes_min: int, cuts: bool
) -> str:
    """Runs the load and the faults. Returns the counts and times as text; raises AssertionError if a check fails. With
    `cuts` the network is partitioned, too, if this machine allows network namespaces."""
    why_not = network.missing() if cuts else "only kills were asked for"
    with contextlib.ExitStack() as stack:
        hosts = None if why_not else stack.enter_context(network.Hosts(6))
        places = [] if hosts is None else [hosts.address(number) for number in hosts.numbers]
        prefixes = [] if hosts is None else [hosts.inside(number) for number in hosts.numbers]
        cluster = stack.enter_context(
            ClusterProcess(
                folder, brokers=3, controllers=3, hosts=places, prefixes=prefixes, settings=SETTINGS,
                port=0 if hosts is None else 9092,
            )
        )  # fmt: skip
        nemesis = Nemesis(cluster, hosts, random.Random(seed))
        copies = [Copies(cluster.bootstrap_servers, folder, name, command) for name, command in copiers.items()]
        told = _weather(nemesis, copies, seconds, strikes_min)
    return f"seed {seed}: {told}" + (f"; the network was not cut: {why_not}" if why_not else "")


def _weather(nemesis: Nemesis, copies: list[Copies], seconds: float, strikes_min: int) -> str:
    address = nemesis.cluster.bootstrap_servers
    create_logs(address, replicas=3)
    acknowledged = Acknowledged()
    writers = [Writer(address, codec, acknowledged) for codec in CODECS]
    committer, administrator = Committer(address, GROUP, "log-none"), Administrator(address, replicas=3)
    readers = Readers(address, "readers", writers[0].topic)
    stop = threading.Event()
    jobs = [committer.run, administrator.run, readers.run, readers.run]
    jobs += [copy.run for copy in copies] + [writer.run for writer in writers]
    workers = [threading.Thread(target=job, args=(stop,)) for job in jobs]
    for worker in workers:
        worker.start()
    waits: list[float] = []
    try:
        acknowledged.wait_for_more(100)
        end = time.monotonic() + seconds
        while nemesis.done.total() < strikes_min or time.monotonic() < end:
            nemesis.strike()
            began = time.monotonic()
            acknowledged.wait_for_more(nemesis.rng.randrange(1, 2000))
            waits.append(time.monotonic() - began)
        nemesis.cluster.wait_ready()
        acknowledged.wait_for_more(1000)
    finally:
        stop.set()
        for worker in workers:
            worker.join(STANDSTILL_S)
    for writer in writers:
        writer.finish()
    records = sum(writer.check(address) for writer in writers)
    read = readers.check(writers[0].sent)
    committer.check(address, GROUP)
    administrator.check(address)
    copied = ", ".join(f"{copy.check()} copied by {copy.name}" for copy in copies)
    return (
        f"{dict(nemesis.done)}; {records} records, {read} read by a group ({readers.again} of them again, "
        f"{readers.rebalances} assignments), {copied}, {committer.promised} commits, {len(administrator.created)} "
        f"topics; until work went on: median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s"
    )
