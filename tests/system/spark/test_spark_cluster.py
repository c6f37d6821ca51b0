"""A standalone Spark cluster, and an executor that is killed in the middle of a micro-batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="the example finds executors in /proc")
def test_pipeline_on_a_cluster_survives_the_kill_of_an_executor(tmp_path: Path) -> None:
    # In a process of its own: one process has one Spark session, and the other tests here have theirs.
    command = [sys.executable, "-m", "examples.cluster", "--records", "50000", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 50000 records are in the files, each once" in done.stdout
    assert "killed the executor with the process id" in done.stdout
