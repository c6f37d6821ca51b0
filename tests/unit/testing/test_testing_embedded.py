"""The embedded broker and the pytest plugin."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.core.config import ConfigError
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker


def test_two_embedded_brokers_run_side_by_side_and_remove_their_data() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as two:
        assert one.bootstrap_servers != two.bootstrap_servers
        directory = Path(one.data_dir)
        assert (directory / "meta.properties").exists()
    assert not directory.exists()


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def test_a_stopped_broker_keeps_no_descriptor() -> None:
    with EmbeddedBroker():
        pass
    before = _open_descriptors()
    with EmbeddedBroker():
        assert _open_descriptors() > before
    assert _open_descriptors() == before


def test_given_data_dir_is_kept_after_stop(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=str(tmp_path / "d")):
        pass
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


def test_start_raises_the_exception_that_prevents_it() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker({"num.partitions": "none"}).start()


def test_async_embedded_broker_runs_on_the_running_loop() -> None:
    async def main() -> str:
        async with AsyncEmbeddedBroker() as broker:
            host, _, port = broker.bootstrap_servers.partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            await writer.wait_closed()
            return host

    assert asyncio.run(main()) == "127.0.0.1"


def test_pytest_fixtures_provide_running_brokers(
    barnabas_broker: EmbeddedBroker, barnabas_broker_factory: Callable[..., EmbeddedBroker]
) -> None:
    other = barnabas_broker_factory(config={"num.partitions": "7"})
    assert barnabas_broker.bootstrap_servers != other.bootstrap_servers


def test_plugin_import_loads_no_heavy_modules() -> None:
    code = (
        "import sys, barnabas.testing.pytest_plugin, barnabas.testing; "
        "print([m for m in ('asyncio', 'uvloop', 'barnabas.server.node', 'barnabas.server.broker', 'cramjam') "
        "if m in sys.modules and m not in before])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", f"import pytest, sys; before = set(sys.modules); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"
