"""Every Python block of the tutorial and of the migration pages runs, and prints what stands under it."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing.embedded import EmbeddedBroker

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(path for path in (DOCS / "tutorial").glob("*.md") if path.name != "README.md")
PAGES += sorted((DOCS / "migration").glob("*.md"))
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def tutor() -> Iterator[str]:
    settings = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.min.heartbeat.interval.ms": "100"}
    with EmbeddedBroker(settings) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_page_is_true(tutor: str, page: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert any(kind == "python" for kind, _ in blocks)
    names: dict[str, object] = {"__name__": "tutorial"}
    printed = ""
    for kind, text in blocks:
        if kind == "text":
            assert printed == text, f"{page.name} promises\n{text}but the block above prints\n{printed}"
            continue
        for module in re.findall(
            r"^import (duckdb|pyarrow)|^from (kafka|aiokafka|confluent_kafka)", text, re.MULTILINE
        ):
            pytest.importorskip(next(filter(None, module)))
        line = page.read_text()[: page.read_text().index(text)].count("\n")
        code = compile("\n" * line + text.replace("localhost:9092", tutor), str(page), "exec")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, names)
        printed = out.getvalue()
