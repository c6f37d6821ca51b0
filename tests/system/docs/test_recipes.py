"""Every Python block of docs/recipes runs, in a process of its own, and prints what stands under it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.progress import STANDSTILL_S
from tests.system.pages import DOCS

pytestmark = pytest.mark.system

PAGES = sorted(path for path in (DOCS / "recipes").glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_code_blocks_of_the_recipe_run_and_print_the_shown_output(servers: str, page: Path) -> None:
    command = [sys.executable, "-m", "tests.system.pages", str(page), f"localhost:9092={servers}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STANDSTILL_S, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
