"""Every Python block of the tutorial and of the migration pages runs, and prints what stands under it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.pages import DOCS, run_page

PAGES = sorted(path for path in (DOCS / "tutorial").glob("*.md") if path.name != "README.md")
PAGES += sorted(path for path in (DOCS / "migration").glob("*.md") if path.name != "README.md")


@pytest.fixture(scope="module")
def tutor() -> Iterator[str]:
    settings = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.min.heartbeat.interval.ms": "100"}
    with EmbeddedBroker(settings) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_code_blocks_of_the_page_run_and_print_the_shown_output(tutor: str, page: Path) -> None:
    run_page(page, {"localhost:9092": tutor})
