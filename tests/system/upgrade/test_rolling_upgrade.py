"""A rolling upgrade under load: node after node gets the new version, and the feature levels are raised at the end.

`pytest --previous-version REF` names the commit from which the cluster comes; without it, the newest tag. CI has no
history, and so rolls a cluster of the present version from lower feature levels.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Final

import pytest

from barnabas import Admin
from barnabas.core.errors import KafkaError
from barnabas.server.metadata.features import DEFAULT_LEVELS
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import STANDSTILL_S, wait_until
from tests.system.cluster.copies import Copies, librdkafka

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).parents[3]
LOWER_LEVELS: Final = {
    "eligible.leader.replicas.version": 0,
    "group.version": 0,
    "share.version": 0,
    "transaction.version": 0,
}


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True, check=False, timeout=60)


def previous_source(request: pytest.FixtureRequest, folder: Path) -> tuple[str, Path]:
    """The previous version's name, and the folder with its source."""
    name = request.config.getoption("--previous-version")
    if name is None:
        found = git("describe", "--tags", "--abbrev=0", "HEAD")
        if found.returncode:
            pytest.skip("no version was released yet, or the history is missing: give --previous-version REF")
        name = found.stdout.decode().strip()
    archive = git("archive", name, "src")
    assert archive.returncode == 0, f"--previous-version {name}: {archive.stderr.decode()}"
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return name, folder / "src"


def features(address: str, *arguments: str) -> str:
    program = [sys.executable, "-c", "from barnabas.cli.kafka.cluster.features import main; main()"]
    command = [*program, "--bootstrap-server", address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STANDSTILL_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def levels(address: str) -> dict[str, int]:
    """The finalized levels of the features in LOWER_LEVELS."""
    rows = [line.split() for line in features(address, "describe").splitlines()]
    found = {row[1]: row[row.index("FinalizedVersionLevel:") + 1] for row in rows}
    return {name: int(found[name]) for name in LOWER_LEVELS}


def change_levels(address: str, direction: str, wanted: dict[str, int]) -> None:
    features(address, direction, *[word for name, level in wanted.items() for word in ("--feature", f"{name}={level}")])
    wait_until(lambda: levels(address) == wanted, f"the feature levels are {wanted}")


def in_sync(admin: Admin) -> bool:
    """Whether all replicas of all partitions are in sync."""
    try:
        names = [listing.name for listing in admin.list_topics(include_internal=True)]
        views = admin.describe_topics(names).values()
    except KafkaError:
        return False
    partitions = [p for view in views if not isinstance(view, KafkaError) for p in view.partitions]
    return bool(partitions) and all(p.leader >= 0 and set(p.isr) == set(p.replicas) for p in partitions)


def roll(cluster: ClusterProcess) -> None:
    """Restart every node with the present version, the active controller last, each when all replicas are in sync."""
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        active = admin.describe_quorum().leader_id
        for node_id in sorted(cluster.nodes, key=lambda node_id: (node_id == active, node_id)):
            node = cluster.node(node_id)
            assert node.stop(STANDSTILL_S) == 0
            node.prefix = ()
            node.start()
            wait_until(
                lambda: in_sync(admin),
                f"all replicas are in sync after the restart of node {node_id}",
                progress=lambda: sum(path.stat().st_size for path in cluster.folder.glob("*.log.txt")),
            )


def upgrade_under_load(cluster: ClusterProcess, folder: Path) -> int:
    """Lower the feature levels, roll the cluster while transactions copy numbers, raise the levels. Returns the number
    of copies, none of which is missing or there twice."""
    address = cluster.bootstrap_servers
    change_levels(address, "downgrade", LOWER_LEVELS)
    copies = Copies(address, folder, "upgrade", librdkafka)
    ended = threading.Event()
    failures: list[BaseException] = []

    def load() -> None:
        try:
            copies.run(ended)
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            failures.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        roll(cluster)
        features(address, "upgrade", "--release-version", "4.3")
        raised = {name: DEFAULT_LEVELS[name] for name in LOWER_LEVELS}
        wait_until(lambda: levels(address) == raised, f"the feature levels are {raised}")
    finally:
        ended.set()
        thread.join(STANDSTILL_S)
    assert failures == []
    return copies.check()


def test_feature_levels_are_raised_after_a_rolling_restart(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, settings=("offsets.topic.num.partitions=4",)) as cluster:
        assert upgrade_under_load(cluster, tmp_path) > 0


@pytest.mark.slow
def test_a_cluster_of_the_previous_version_is_upgraded(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name, source = previous_source(request, tmp_path / "previous")
    before = ["env", f"PYTHONPATH={source}"]
    where = [*before, sys.executable, "-c", "import barnabas; print(barnabas.__file__)"]
    shown = subprocess.run(where, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    assert Path(shown).is_relative_to(source), "the previous version is what runs"
    settings = ("offsets.topic.num.partitions=4",)
    with ClusterProcess(tmp_path, settings=settings, prefixes=[before] * 3) as cluster:
        assert upgrade_under_load(cluster, tmp_path) > 0, f"nothing was copied while {name} was upgraded"
