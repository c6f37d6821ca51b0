"""The blocks of docs/CONNECT.md about tables, files and web services run, and print what stands under them."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.system.pages import DOCS, run_page

pytestmark = pytest.mark.system


class Hook(http.server.BaseHTTPRequestHandler):
    """Accepts every request, and keeps the keys."""

    keys: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook"
        server.shutdown()
        thread.join()


@pytest.mark.spark
def test_the_blocks_about_tables_files_and_web_services_run(spark: Any, tmp_path: Path, hook: str) -> None:
    names: dict[str, object] = {"spark": spark}
    addresses = {"/lake/": f"{tmp_path}/", "http://127.0.0.1:8000/hook": hook}
    run_page(DOCS / "CONNECT.md", addresses, names, section="## Tables and files")
    orders = spark.createDataFrame([(1,), (2,)], "id BIGINT")
    run_page(DOCS / "CONNECT.md", addresses, {"spark": spark, "orders": orders}, section="## HTTP")
    assert len(Hook.keys) == 2
    assert len(set(Hook.keys)) == 2
