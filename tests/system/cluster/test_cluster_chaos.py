"""Three brokers and three controllers, killed, stopped and cut off under work: nothing acknowledged is lost or doubled.

The short form is part of `make test`; `make soak` runs five minutes (BARNABAS_SOAK_SECONDS) and cuts the network, too,
where it may make namespaces. BARNABAS_SEED repeats what was struck, not when.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.system.cluster.copies import librdkafka
from tests.system.cluster.storm import storm

SOAK_S = float(os.environ.get("BARNABAS_SOAK_SECONDS", "300"))
SEED = int(os.environ.get("BARNABAS_SEED") or random.randrange(1 << 32))


@pytest.mark.system
def test_cluster_keeps_acknowledged_data_under_faults(tmp_path: Path) -> None:
    print(storm(tmp_path, {"librdkafka": librdkafka}, seed=SEED, seconds=0, strikes_min=3, cuts=False))


@pytest.mark.slow
@pytest.mark.timeout(900 + SOAK_S)
def test_cluster_keeps_acknowledged_data_under_long_faults(tmp_path: Path) -> None:
    print(storm(tmp_path, {"librdkafka": librdkafka}, seed=SEED, seconds=SOAK_S, strikes_min=3, cuts=True))
