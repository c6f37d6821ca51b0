"""docs/COMPATIBILITY.md says which APIs are served: its table is that of the dispatch table (`--rewrite` writes it)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.apis import BY_KEY
from barnabas.wire.apis import APIS

PAGE = Path(__file__).parents[3] / "docs" / "COMPATIBILITY.md"
BEGIN, END = "<!-- apis -->\n", "<!-- /apis -->\n"


def render_table() -> str:
    lines = ["| Key | API | Served | The codec knows |", "|---:|---|---|---|"]
    for key, api in sorted(APIS.items()):
        route = BY_KEY.get(int(key))
        served = "no" if route is None else f"{route.min_version} to {route.max_version}"
        lines.append(f"| {int(key)} | {api.name} | {served} | {api.min_version} to {api.max_version} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_the_dispatch_table(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    expected = before + BEGIN + render_table() + END + after
    if request.config.getoption("--rewrite"):
        PAGE.write_text(expected, encoding="utf-8")
    else:
        assert page == expected
