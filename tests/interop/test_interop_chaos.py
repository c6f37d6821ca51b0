"""The storm over a cluster of real processes, with Java's client copying beside librdkafka."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.interop.jars import clients_classpath
from tests.system.cluster.copies import PER_TRANSACTION, librdkafka
from tests.system.cluster.storm import storm

JAVA = Path(__file__).parent / "java"
SOAK_S = float(os.environ.get("BARNABAS_SOAK_SECONDS", "120"))
SEED = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))


@pytest.mark.slow
@pytest.mark.timeout(900 + SOAK_S)
def test_a_cluster_keeps_its_promises_to_clients_of_two_kinds(tmp_path: Path) -> None:
    classes = tmp_path / "classes"
    subprocess.run(
        ["javac", "-cp", clients_classpath(), "-d", str(classes), str(JAVA / "TransactionalCopier.java")],
        check=True,
        timeout=120,
    )

    def java(bootstrap: str, source: str, target: str, group: str) -> list[str]:
        command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{clients_classpath()}:{classes}"]
        return [*command, "TransactionalCopier", bootstrap, source, target, group, str(PER_TRANSACTION)]

    copiers = {"librdkafka": librdkafka, "Java": java}
    print(storm(tmp_path, copiers, seed=SEED, seconds=SOAK_S, strikes_min=3, cuts=True))
