"""Runs the Python blocks of a page of the documentation, in order and in one namespace.

`python -m tests.system.pages PAGE NAMED=REAL...` does so in a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs"
_BLOCK: Final = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def run_page(
    page: Path,
    addresses: Mapping[str, str],
    names: Mapping[str, object] | None = None,
    after_block: Callable[[], object] = lambda: None,
    section: str | None = None,
) -> dict[str, object]:
    """Runs every `python` block, and compares its output with the `text` block that follows. `addresses` replace the
    addresses in the page. The blocks find `names` defined. `after_block` runs after each block. `section` is a heading
    with its number signs, such as `### PostgreSQL`: only the blocks under it run. Returns the names that
    the blocks define.
    """
    whole = page.read_text()
    blocks = _BLOCK.findall(whole if section is None else section_of(whole, section))
    assert any(kind == "python" for kind, _ in blocks)
    namespace: dict[str, object] = {"__name__": "tutorial", **(names or {})}
    printed = ""
    for kind, text in blocks:
        if kind == "text":
            assert printed == text, f"{page.name} shows\n{text}but the block above prints\n{printed}"
            continue
        source = "\n" * whole[: whole.index(text)].count("\n") + text
        for named, real in addresses.items():
            source = source.replace(named, real)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(source, str(page), "exec"), namespace)
            after_block()
        printed = out.getvalue()
    return namespace


def section_of(whole: str, heading: str) -> str:
    """The text from a heading to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    start = whole.index(f"\n{heading}\n") + len(heading) + 2
    following = re.compile(rf"^#{{1,{level}}} ", re.MULTILINE).search(whole, start)
    return whole[start : following.start() if following else len(whole)]


if __name__ == "__main__":
    run_page(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:]))
