"""examples/shop in a small form, with its own comparison of the databases and the Delta table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.spark
def test_the_report_of_the_shop_is_the_join_of_its_databases(tmp_path: Path) -> None:
    sizes = ["--orders", "300", "--seconds", "10", "--customers", "20"]
    command = [sys.executable, "-m", "examples.shop", *sizes, "--kills", "postgres", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("each as it is in the source databases") == 3
    assert (tmp_path / "out" / "shop.png").stat().st_size > 10_000
