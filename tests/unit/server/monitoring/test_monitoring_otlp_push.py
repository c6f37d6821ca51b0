"""A node that pushes its metrics."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from barnabas.core.config import ConfigError
from barnabas.server.broker.client_metrics.otlp import read_metrics
from barnabas.server.node.otlp_push import Receiver, parse_headers
from barnabas.testing.embedded import AsyncEmbeddedBroker
from tests.progress import until

Received = tuple[str, dict[str, str], bytes]


@contextmanager
def receiver(status: int) -> Iterator[tuple[str, list[Received]]]:
    """A receiver of OTLP that answers with `status`: its URL, and the requests that it got."""
    received: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append((self.path, dict(self.headers), body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(("status", "result"), [(200, "ok"), (503, "failed")])
def test_a_node_pushes_what_its_page_has(status: int, result: str) -> None:
    with receiver(status) as (url, received):
        config = {
            "barnabas.metrics.otlp.endpoint": f"{url}/v1/metrics",
            "barnabas.metrics.otlp.headers": "Authorization=Bearer abc",
            "barnabas.metrics.otlp.interval.ms": "1000",
        }

        async def main() -> None:
            async with AsyncEmbeddedBroker(config=config) as broker:
                assert broker.node is not None
                pushes = broker.node.metrics.counter("barnabas_otlp_pushes_total", result=result)
                await until(lambda: pushes.value > 0, "the node has pushed its metrics")

        asyncio.run(main())
    path, headers, body = received[0]
    assert path == "/v1/metrics"
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer abc", "application/x-protobuf")
    points = {point.name: point.value for point in read_metrics(gzip.decompress(body)) if not point.attributes}
    assert points["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert points["barnabas_ready"] == 1


@pytest.mark.parametrize(
    "url",
    [
        "collector:4318",
        "ftp://collector/v1",
        "http://user:secret@collector/v1",
        "http://a:b/",
        "http://c/v1 x",
        "http://é/",
    ],
)
def test_an_endpoint_that_cannot_be_used(url: str) -> None:
    with pytest.raises(ConfigError, match=r"barnabas\.metrics\.otlp\.endpoint"):
        Receiver(url, {})


def test_headers() -> None:
    assert parse_headers("a=b=c, d = e,") == {"a": "b=c", "d": "e"}
    assert parse_headers(None) == {}
    for bad in ("abc", "=b", "a=b\r\nc", "X Scope=1", "a:b=c", "a=é"):  # http.client raises ValueError for these
        with pytest.raises(ConfigError, match="name=value"):
            parse_headers(bad)
