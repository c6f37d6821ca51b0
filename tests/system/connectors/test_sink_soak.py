"""Every sink is the source after random kills, with keys that change beside large values, and columns that change."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.system.connectors.sink_soak import run

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.slow]


def test_every_sink_is_the_source_after_random_kills(tmp_path: Path) -> None:
    """BARNABAS_SOAK_KILLS is the number of kills (30), BARNABAS_SOAK_SEED plays the kills of another run again."""
    kills = int(os.environ.get("BARNABAS_SOAK_KILLS", "30"))
    seed = int(os.environ.get("BARNABAS_SOAK_SEED") or random.randrange(10_000))
    print(f"{kills} kills, BARNABAS_SOAK_SEED={seed}", flush=True)
    run(tmp_path, seed, kills)
