"""The pages of pipelines and mirrors, whose readers the command line supplies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from barnabas.testing import EmbeddedBroker
from tests.unit.console.pages import Browser, console

FLOW = {
    "flow": "large_orders",
    "type": "streaming",
    "state": "running",
    "reads": ["orders"],
    "target": "large",
    "rows": 1200,
    "rows_per_second": 40.0,
    "lag": 7,
    "batch_id": 3,
    "batch_ms": 250,
    "watermark": None,
    "state_rows": None,
    "state_bytes": None,
    "error": None,
}
FAILED = {**FLOW, "flow": "totals", "state": "failed", "rows_per_second": None, "lag": None, "error": "no such column"}
RUN = {"mode": "continuous", "pid": 1, "started_ms": 1_000, "updated_ms": 2_000, "flows": [FLOW, FAILED]}
SHOP = {"pipeline": "shop", "status": "running", "directory": "/srv/shop", "lag": 7, "run": RUN}
NEVER_RUN = {"pipeline": "new", "status": "stopped", "directory": "/srv/new", "lag": None, "run": {}}


def lag(partition: int, behind: int) -> dict[str, Any]:
    return {
        "topic": "orders",
        "partition": partition,
        "position": 10,
        "sourceEnd": 10 + behind,
        "lag": behind,
        "lagBytes": 0,
        "lagSeconds": behind / 2,
        "copied": 0,
        "lost": 0,
    }


class CountingMirror:
    """A reader that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self) -> Sequence[Mapping[str, Any]]:
        self.calls += 1
        return [
            {"pair": "A->B", "lags": [lag(0, 4), lag(1, 0)], "losses": ["orders-1 lost 3 records"], "problem": ""},
            {"pair": "B->A", "lags": [], "losses": [], "problem": "no broker of A answers"},
        ]


def test_pipelines_are_listed_and_described(broker: EmbeddedBroker) -> None:
    with console(broker.bootstrap_servers, pipelines=lambda: [NEVER_RUN, SHOP]) as browser:
        new, shop = browser.document("/pipelines")["rows"]
        assert (new["status"], new["rows_per_second"], new["lag"], new["flow_states"]) == ("stopped", None, None, {})
        assert (shop["status"], shop["rows_per_second"], shop["lag"]) == ("running", 40.0, 7)
        assert shop["flow_states"] == {"failed": 1, "running": 1}
        assert '<a href="/pipelines" aria-current="page">' in browser.page("/pipelines")
        (project,) = browser.document("/pipelines/shop")["projects"]
        assert [flow["flow"] for flow in project["flows"]] == ["large_orders", "totals"]
        text = browser.page("/pipelines/shop")
        assert "no such column" in text
        assert "250 ms" in text
        assert "The flows are known after the first run." in browser.page("/pipelines/new")
        assert browser.document("/pipelines/old", 404) == {"error": "No pipeline 'old' ran on this machine."}


def test_mirrors_are_listed_and_read_once_for_many_users(broker: EmbeddedBroker) -> None:
    reader = CountingMirror()
    with console(broker.bootstrap_servers, mirror=reader) as browser:
        document = browser.document("/mirrors?sort=-lag")
        assert [(p["pair"], p["lag"], p["seconds"]) for p in document["pairs"]] == [
            ("A->B", 4, 2.0),
            ("B->A", None, None),
        ]
        assert [row["name"] for row in document["rows"]] == ["A->B orders-0", "A->B orders-1"]
        text = browser.page("/mirrors")
        assert "A->B: orders-1 lost 3 records" in text
        assert "B->A: no broker of A answers" in text
        assert reader.calls == 1


def test_pages_without_a_reader_say_how_to_get_them(browser: Browser) -> None:
    assert browser.document("/pipelines", 404)["error"].endswith("start it with --pipelines.")
    assert browser.document("/mirrors", 404)["error"].endswith("start it with --mirror FILE.")
    text = browser.page("/")
    assert '<a href="/pipelines"' not in text
    assert '<a href="/mirrors"' not in text
