"""New nodes take the place of old ones of the other program: added to the quorum, filled, and the old ones removed.

The cluster has a dynamic quorum (KIP-853). Producers write all the time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.mixed_cluster import MixedCluster, Program
from tests.progress import STANDSTILL_S
from tests.system.chaos.workload import CODECS, Acknowledged, Committer, Writer, create_logs

FIRST, SECOND, THIRD = (1, 2, 3), (11, 12, 13), (21, 22, 23)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_new_nodes_replace_those_of_the_other_program_and_are_replaced(tmp_path: Path) -> None:
    roles = dict.fromkeys((*FIRST, *SECOND, *THIRD), "broker,controller")
    with MixedCluster(tmp_path, roles, replicas=3, settings=["min.insync.replicas=2"], dynamic=True) as cluster:
        cluster.start({FIRST[0]: "kafka"})
        add(cluster, FIRST[1:], "kafka")
        address = ",".join(cluster[node_id].client for node_id in FIRST)
        create_logs(address, replicas=3)
        acknowledged = Acknowledged()
        writers = [Writer(address, codec, acknowledged) for codec in CODECS]
        committer = Committer(address, "committers", "log-none")
        stop = threading.Event()
        workers = [threading.Thread(target=job, args=(stop,)) for job in (committer.run, *(w.run for w in writers))]
        for worker in workers:
            worker.start()
        try:
            acknowledged.wait_for_more(1000)
            replace(cluster, FIRST, SECOND, "barnabas")
            acknowledged.wait_for_more(1000)
            replace(cluster, SECOND, THIRD, "kafka")
            acknowledged.wait_for_more(1000)
        finally:
            stop.set()
            for worker in workers:
                worker.join(STANDSTILL_S)
        for writer in writers:
            writer.finish()
        address = ",".join(cluster[node_id].client for node_id in THIRD)
        print(sum(writer.check(address) for writer in writers), "records")
        committer.check(address, "committers")


def add(cluster: MixedCluster, node_ids: Sequence[int], program: Program) -> None:
    """Start new nodes, and make their controllers voters, one after the other."""
    for node_id in node_ids:
        cluster[node_id].start(program)
        cluster.barnabas("cluster", "add-controller", str(node_id), f"CONTROLLER://{cluster[node_id].controller}")


def replace(cluster: MixedCluster, old: Sequence[int], new: Sequence[int], program: Program) -> None:
    add(cluster, new, program)
    cluster.barnabas("cluster", "drain", *map(str, old))
    for node_id in old:
        cluster.barnabas("cluster", "remove-controller", str(node_id))
        cluster[node_id].stop()
        cluster.barnabas("cluster", "unregister", str(node_id))
    assert {node_id for node_id in cluster.nodes if cluster[node_id].program} == set(new)
