"""Tiered storage with real processes: brokers are killed, replicas lost, the object store slow or cut off."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from barnabas.testing.process_cluster import ClusterProcess
from barnabas.testing.proxy import Proxy
from tests.progress import wait_until
from tests.system.tiered.archive import SEGMENT_BYTES, SETTINGS, TOPIC, Archive, object_files
from tests.system.tiered.s3_server import s3_server

pytestmark = pytest.mark.system
RECORDS = 2_000


def test_a_killed_leader_and_a_lost_replica_cost_no_record(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    settings = (*SETTINGS, f"rsm.config.storage.root={store}")
    with ClusterProcess(tmp_path / "nodes", settings=settings) as cluster:
        archive = Archive(cluster)
        archive.create()
        archive.write(RECORDS)
        wait_until(lambda: bool(object_files(store, ".log")), "the first segment is copied")
        cluster.node(3).kill()  # the leader, while it copies
        archive.write(RECORDS)
        archive.wait_short(cluster.node(1), cluster.node(2))
        archive.read_all()

        shutil.rmtree(cluster.node(3).data_dir / f"{TOPIC}-0")  # its new replica begins above the copies
        cluster.node(3).restart()
        archive.elect_preferred()
        assert archive.local_start(cluster.node(3)) > 0
        archive.write(RECORDS)
        archive.read_all()
        archive.wait_short(*cluster.nodes.values())
        archive.read_all()

        archive.admin.delete_topics([TOPIC])[TOPIC].result(60)
        wait_until(
            lambda: not object_files(store), "the objects are deleted", progress=lambda: len(object_files(store))
        )


@pytest.mark.slow
def test_a_store_that_is_slow_or_cut_off_costs_no_record(tmp_path: Path) -> None:
    with s3_server(tmp_path) as address, Proxy(address) as proxy:
        settings = (
            *SETTINGS,
            "rsm.config.storage.s3.bucket.name=segments",
            f"rsm.config.storage.s3.endpoint.url=http://{proxy.address}",
            "rsm.config.storage.s3.region=us-east-1",
            "rsm.config.storage.s3.path.style.access.enabled=true",
            "rsm.config.storage.aws.access.key.id=id",
            "rsm.config.storage.aws.secret.access.key=secret",
            "rsm.config.storage.request.timeout.ms=3000",
            "rsm.config.key.prefix=tiered/",
        )
        with ClusterProcess(tmp_path / "nodes", settings=settings) as cluster:
            archive = Archive(cluster)
            archive.create()
            proxy.delay(50)
            archive.write(RECORDS)
            archive.wait_short(*cluster.nodes.values())
            proxy.cut()
            healing = threading.Timer(4.0, proxy.heal)  # reads wait for the store meanwhile
            healing.start()
            archive.read_all()
            healing.join()
            proxy.refuse()
            archive.write(RECORDS)
            local = archive.local_start(cluster.node(3))
            assert local <= RECORDS, "nothing is deleted that has no copy"
            proxy.heal()
            archive.wait_short(*cluster.nodes.values())
            archive.read_all()


@pytest.mark.slow
def test_an_empty_replica_begins_above_the_copies(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    settings = (
        *SETTINGS,
        f"rsm.config.storage.root={store}",
        "follower.fetch.last.tiered.offset.enable=true",
    )
    with ClusterProcess(tmp_path / "nodes", settings=settings) as cluster:
        archive = Archive(cluster)
        archive.create(local_retention_bytes=str(4 * SEGMENT_BYTES))
        archive.write(RECORDS)
        leader = cluster.node(3)
        wait_until(lambda: archive.local_start(leader) > 0, "the leader's local log begins above the log start")
        active = archive.local_bases(leader)[-1]
        wait_until(
            lambda: (
                set(archive.local_bases(leader)[:-1]) <= {int(path.name[:20]) for path in object_files(store, ".log")}
            ),
            "all closed segments are copied",
            progress=lambda: len(object_files(store)),
        )
        cluster.node(1).kill()
        shutil.rmtree(cluster.node(1).data_dir / f"{TOPIC}-0")
        cluster.node(1).restart()
        wait_until(lambda: archive.local_start(cluster.node(1)) > 0, "the empty replica continues")
        assert archive.local_start(leader) < archive.local_start(cluster.node(1)) == active
        cluster.node(2).kill()  # the new replica is in sync, or nothing can be written
        archive.write(100)
        archive.read_all()
