"""`serve --metrics`: the pages of a running node."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from barnabas import __version__
from barnabas.core.config import ConfigError
from barnabas.server.node.config import build_config
from barnabas.server.node.server import Node
from barnabas.server.storage.errors import DiskIoError


def get(url: str) -> tuple[int, str, str]:
    try:
        with urlopen(url, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def new_node(folder: Path, url: str) -> Node:
    config = build_config({}, data_dir=str(folder), listener="PLAINTEXT://127.0.0.1:0", metadata_fsync=False)
    return Node(config, metrics_url=url)


def test_metrics_and_health(tmp_path: Path) -> None:
    async def main() -> None:
        node = new_node(tmp_path, "http://127.0.0.1:0")
        ready = asyncio.Event()
        running = asyncio.create_task(node.run(lambda _: ready.set()))
        await ready.wait()
        assert node.pages is not None
        url = node.pages.url
        assert url.endswith("/metrics")
        status, content_type, text = await asyncio.to_thread(get, url)
        assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert '# TYPE barnabas_net_connections gauge\nbarnabas_net_connections{listener="PLAINTEXT"} 0\n' in text
        live, health, readiness, version = (
            url.replace("/metrics", path) for path in ("/livez", "/healthz", "/readyz", "/version")
        )
        assert (await asyncio.to_thread(get, live))[::2] == (200, "ok\n")
        assert (await asyncio.to_thread(get, health))[::2] == (200, "ok\n")
        status, content_type, text = await asyncio.to_thread(get, readiness)
        parts = {name: {"ready": True, "reasons": []} for name in ("quorum", "logs", "listeners", "broker", "node")}
        assert (status, content_type, json.loads(text)) == (200, "application/json", {"ready": True, "parts": parts})
        status, _, text = await asyncio.to_thread(get, version)
        assert json.loads(text) == {
            "version": __version__, "node_id": "1", "cluster_id": node.identity.cluster_id,
            "roles": "broker,controller",
        }  # fmt: skip
        node._dirs[0]._state.failure = DiskIoError("the disk is gone")
        offline = f"{tmp_path} is offline: the disk is gone"
        for page in (live, health):
            assert (await asyncio.to_thread(get, page))[::2] == (503, f"{offline}\n")
        status, _, text = await asyncio.to_thread(get, readiness)
        parts["logs"] = {"ready": False, "reasons": [offline]}
        assert (status, json.loads(text)) == (503, {"ready": False, "parts": parts})
        node._dirs[0]._state.failure = None
        with pytest.raises(ConfigError, match=r"Choose another port \(0: any\)"):
            await new_node(tmp_path / "other", url).run()
        node.stop()
        await running

    asyncio.run(main())


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:9404",
        "https://127.0.0.1:1",
        "http://h:99999",
        "http://h:0/healthz",
        "http://h:0/readyz",
        "http://h:0/livez",
    ],
)
def test_invalid_metrics_url_raises_config_error(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="--metrics"):
        asyncio.run(new_node(tmp_path, url).run())
