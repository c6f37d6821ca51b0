"""`readFrom=segments` of a tiered topic: the rows of remote segments are those that the broker returns."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas.client.partition_reader import OffsetRange
from barnabas.spark.connection import LogClient
from barnabas.testing.process import BrokerProcess
from tests.progress import wait_until
from tests.system.spark.broker import Topics
from tests.system.spark.segment_reads import COMMITTED, fill, read, record_fetches
from tests.system.tiered.archive import SETTINGS
from tests.system.tiered.s3_server import s3_server

pytestmark = pytest.mark.system
TOPIC = "orders"
Options = dict[str, str]


@contextmanager
def tiered_topic(folder: Path, *store: str) -> Iterator[Options]:
    """A broker with the filled topic, of which only the active segments are local. Gives the options of a reader."""
    with BrokerProcess(folder / "data", settings=[*SETTINGS, *store]) as broker:
        servers = broker.bootstrap_servers
        client = LogClient({"bootstrap.servers": servers})
        try:
            fill(Topics(servers, client), TOPIC)
        finally:
            client.close()
        configs = {"remote.storage.enable": "true", "local.retention.bytes": "1", "retention.ms": "-1"}
        resource = ConfigResource(
            ResourceType.TOPIC,
            TOPIC,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in configs.items()
            ],
        )
        admin = AdminClient({"bootstrap.servers": servers})
        admin.incremental_alter_configs([resource])[resource].result(60)
        logs = [broker.data_dir / f"{TOPIC}-{partition}" for partition in range(2)]
        wait_until(
            lambda: all(len(list(local.glob("*.log"))) == 1 for local in logs),
            "only the active segments are local",
            progress=lambda: [sorted(path.name for path in local.glob("*.log")) for local in logs],
        )
        yield {"kafka.bootstrap.servers": servers, "subscribe": TOPIC}


def check(options: Options, store: Options, fetched: list[OffsetRange]) -> None:
    """Compare the rows with those of the broker, of whose records at most the active segments are fetched."""
    for isolation in ({"kafka.isolation.level": "read_uncommitted"}, COMMITTED):
        fetched.clear()
        expected = read(options, **isolation)
        offsets = _fetched(fetched)
        assert expected.num_rows > 3_000 and offsets > 3_000
        fetched.clear()
        assert read(options, **isolation, readFrom="segments", **store).equals(expected)
        assert _fetched(fetched) < 0.5 * offsets, "remote segments were fetched from the broker"
        parts = {"maxRecordsPerPartition": "300"}
        assert read(options, **isolation, **parts, readFrom="segments", **store).equals(expected)
    table = read(options, readAs="table", **COMMITTED)
    assert read(options, readAs="table", readFrom="segments", **COMMITTED, **store).equals(table)


def _fetched(fetched: list[OffsetRange]) -> int:
    return sum(wanted.end - wanted.start for wanted in fetched if wanted.partition.topic == TOPIC)


def test_remote_segments_in_a_directory_have_the_rows_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    fetched = record_fetches(monkeypatch)
    with tiered_topic(tmp_path, f"rsm.config.storage.root={store}") as options:
        check(options, {"segments.store": str(store)}, fetched)
        expected = read(options, **COMMITTED)
        lost = next(path for path in sorted(store.rglob("*.log")) if path.parent.name == "0")
        for missing in ("no such directory", "lost object"):
            place = tmp_path / missing
            if missing == "lost object":
                shutil.copytree(store, place)
                (place / lost.relative_to(store)).unlink()
            assert read(options, readFrom="segments", **COMMITTED, **{"segments.store": str(place)}).equals(expected)


@pytest.mark.slow
def test_remote_segments_in_a_bucket_have_the_rows_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    fetched = record_fetches(monkeypatch)
    with ExitStack() as stack:
        address = stack.enter_context(s3_server(tmp_path))
        settings = (
            "rsm.config.storage.s3.bucket.name=segments",
            f"rsm.config.storage.s3.endpoint.url=http://{address}",
            "rsm.config.storage.s3.region=us-east-1",
            "rsm.config.storage.s3.path.style.access.enabled=true",
            "rsm.config.key.prefix=tiered/",
        )
        options = stack.enter_context(tiered_topic(tmp_path, *settings))
        store = {
            "segments.store": "s3://segments/tiered/",
            "segments.store.endpoint": f"http://{address}",
            "segments.store.region": "us-east-1",
        }
        check(options, store, fetched)
