"""A reader that starts right after `save()` sees all rows, also if a task attempt was lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.spark.broker import Topics
from tests.system.spark.failing_attempts import ROWS

pytestmark = pytest.mark.system


@pytest.mark.usefixtures("transactions")
@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_a_reader_right_after_save_sees_all_rows(
    topics: Topics, servers: str, topic: str, tmp_path: Path, times: int
) -> None:
    topics.create(topic, 2)
    command = [sys.executable, "-m", "tests.system.spark.failing_attempts", servers, topic, str(times), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{ROWS * (number + 1)} True" for number in range(times)]
    assert done.stderr.count("aborting 1 transactions that lost task attempts of job-") == times
