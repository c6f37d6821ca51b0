"""The embedded broker and the pytest plugin."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas.core.config import ConfigError
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker
from barnabas.testing.embedded import EmbeddedBrokerError


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


def test_restarted_broker_has_its_data_and_its_address() -> None:
    with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        address = broker.bootstrap_servers
        assert producer.send("orders", b"1").result().offset == 0
        broker.restart()
        assert broker.bootstrap_servers == address
        assert producer.send("orders", b"2").result().offset == 1


def test_paused_broker_answers_when_it_goes_on() -> None:
    with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"1").result()
        broker.pause()
        sent = producer.send("orders", b"2")
        with pytest.raises(TimeoutError):
            sent.result(0.3)
        broker.resume()
        assert sent.result().offset == 1


def test_paused_broker_can_be_stopped() -> None:
    with EmbeddedBroker() as broker:
        broker.pause()
        broker.pause()


def test_proxied_broker_is_only_reached_through_its_proxy() -> None:
    with EmbeddedBroker(proxied=True) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert broker.bootstrap_servers == broker.proxy.address
        assert producer.send("orders", b"1").result().offset == 0
        broker.proxy.refuse()
        sent = producer.send("orders", b"2")
        with pytest.raises(TimeoutError):
            sent.result(0.3)
        broker.restart()
        with pytest.raises(TimeoutError):
            sent.result(0.3)
        broker.proxy.heal()
        assert sent.result().offset == 1


def test_broker_without_a_proxy_says_how_to_get_one() -> None:
    with EmbeddedBroker() as broker, pytest.raises(EmbeddedBrokerError, match="proxied=True"):
        broker.proxy.cut()
    with pytest.raises(EmbeddedBrokerError, match="start it"):
        EmbeddedBroker().restart()


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
