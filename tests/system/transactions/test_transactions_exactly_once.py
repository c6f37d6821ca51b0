"""Read-process-write with the application and the broker killed -9 at random: the output equals the input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.system.transactions.exactly_once import prove


def copier(per_transaction: int, bootstrap: str, source: str, target: str, group: str) -> list[str]:
    module = "tests.system.transactions.copier"
    return [sys.executable, "-m", module, bootstrap, source, target, group, str(per_transaction)]


def stream_copier(bootstrap: str, source: str, target: str, group: str) -> list[str]:
    return [sys.executable, "-m", "tests.system.transactions.stream_copier", bootstrap, source, target, group]


def test_transactional_copy_is_exactly_once_under_kills(tmp_path: Path) -> None:
    told = prove(tmp_path, lambda *where: copier(50, *where), records=4_000, seed=1, kills=4)
    assert told["broker"] + told["application"] == 4


@pytest.mark.system
def test_a_stream_is_exactly_once_under_kills(tmp_path: Path) -> None:
    """`barnabas.stream`, read by a read_committed consumer of librdkafka."""
    told = prove(tmp_path, stream_copier, records=4_000, seed=2, kills=4)
    assert told["broker"] == told["application"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22])
def test_a_long_stream_is_exactly_once_under_kills(tmp_path: Path, seed: int) -> None:
    told = prove(tmp_path, stream_copier, records=60_000, seed=seed, kills=30)
    assert told["broker"] > 0
    assert told["application"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12, 13])
def test_long_transactional_copy_is_exactly_once_under_kills(tmp_path: Path, seed: int) -> None:
    """Kafka's own size: 100,000 records, 750 a transaction."""
    told = prove(tmp_path, lambda *where: copier(750, *where), records=100_000, seed=seed, kills=30)
    assert told["broker"] > 0
    assert told["application"] > 0
