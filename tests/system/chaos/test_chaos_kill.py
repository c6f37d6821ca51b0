"""kill -9 at random moments of a heavy produce: every acknowledged record is stored once, in order.

`make soak` runs the test for five more minutes. BARNABAS_SOAK_SECONDS sets the duration, BARNABAS_SEED the seed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from barnabas.testing.process import BrokerProcess
from tests.progress import STANDSTILL_S
from tests.system.chaos.workload import CODECS, Acknowledged, Administrator, Committer, Writer, create_logs

SETTINGS = ("offsets.topic.num.partitions=4", "group.initial.rebalance.delay.ms=0")
SOAK_S = float(os.environ.get("BARNABAS_SOAK_SECONDS", "300"))
GROUP = "committers"


@pytest.mark.system
@pytest.mark.timeout(900 + SOAK_S)
@pytest.mark.parametrize("seconds", [0.0, pytest.param(SOAK_S, marks=pytest.mark.slow)], ids=["short", "soak"])
def test_kill_9_loses_no_acknowledged_record(tmp_path: Path, seconds: float) -> None:
    seed = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))
    rng = random.Random(seed)
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    broker.start()
    address = broker.bootstrap_servers
    create_logs(address)
    acknowledged = Acknowledged()
    writers = [Writer(address, codec, acknowledged) for codec in CODECS]
    committer, administrator = Committer(address, GROUP, "log-none"), Administrator(address)
    stop = threading.Event()
    jobs = [committer.run, administrator.run, *(writer.run for writer in writers)]
    workers = [threading.Thread(target=job, args=(stop,)) for job in jobs]
    for worker in workers:
        worker.start()
    kills, restarts = 0, []
    try:
        end = time.monotonic() + seconds
        while kills < 6 or time.monotonic() < end:
            acknowledged.wait_for_more(rng.randrange(1, 6000))
            broker.kill()
            kills += 1
            broker.start()
            restarts.append(broker.start_seconds)
        acknowledged.wait_for_more(1000)
    finally:
        stop.set()
        for worker in workers:
            worker.join(STANDSTILL_S)
    try:
        for writer in writers:
            writer.finish()
        records = sum(writer.check(address) for writer in writers)
        committer.check(address, GROUP)
        administrator.check(address)
        print(
            f"seed {seed}: {kills} kills, {records} records, {committer.promised} commits, "
            f"{len(administrator.created)} topics; slowest restart {max(restarts):.2f} s"
        )
    finally:
        broker.stop()
