"""Offsets in checkpoints: read, changed and reset, on files as Spark writes them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.core.ids import TopicPartition
from barnabas.spark.connectors.connect.cluster.values import ConnectRequestError
from barnabas.spark.connectors.connect.offsets.store import CheckpointStore, directory_name
from barnabas.spark.delivery.checkpoints import local_path, open_location, query_id_of

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{"spark.sql.shuffle.partitions":"200"}}'
SINK = {"name": "n", "topics": "orders, customers"}
SOURCE = {"name": "n", "topic.prefix": "shop"}


def write_checkpoint(path: Path, *, planned: Mapping[int, str], committed: Sequence[int]) -> None:
    """A checkpoint of one source, as Spark writes it."""
    for name in ("offsets", "commits", "sources/0"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text('{"id":"the-query"}')
    for batch_id, line in planned.items():
        (path / "offsets" / str(batch_id)).write_text(f"v1\n{METADATA}\n{line}")
        (path / "offsets" / f".{batch_id}.crc").write_bytes(b"crc")
    for batch_id in committed:
        (path / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (path / "sources/0/0").write_text("kept")


def topic(name: str, partition: int, offset: int | None) -> dict[str, Any]:
    where = {"kafka_topic": name, "kafka_partition": partition}
    return {"partition": where, "offset": None if offset is None else {"kafka_offset": offset}}


class Store:
    """A store in a temporary directory. The log of each partition starts at offset 3."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "checkpoints" / "n"
        self._tmp_path = tmp_path

    async def _earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)

    def read(self, config: Mapping[str, str]) -> list[dict[str, Any]]:
        return asyncio.run(self._store().read("n", config))

    def alter(self, config: Mapping[str, str], *changes: Mapping[str, Any]) -> None:
        pairs = [(change["partition"], change["offset"]) for change in changes]
        asyncio.run(self._store().alter("n", config, pairs))

    def reset(self) -> None:
        asyncio.run(self._store().reset("n"))

    def location(self) -> Path:
        return Path(asyncio.run(self._store().places("n")).checkpoint)

    def staging(self) -> str:
        return asyncio.run(self._store().places("n")).staging

    def _store(self) -> CheckpointStore:
        return CheckpointStore(str(self._tmp_path), self._earliest)


def positions(**offsets: int) -> str:
    """The offset of a query over the topic `orders`; the names are p0, p1 and so on."""
    return json.dumps({"orders": {name[1:]: offset for name, offset in offsets.items()}})


def test_the_committed_offsets_of_a_sink(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.read(SINK) == []
    planned = {6: positions(p0=5, p1=7), 7: positions(p0=9, p1=7)}
    write_checkpoint(store.root / "0", planned=planned, committed=[6])
    assert store.read(SINK) == [topic("orders", 0, 5), topic("orders", 1, 7)]


def test_the_offset_of_a_source_is_its_own_document(tmp_path: Path) -> None:
    store = Store(tmp_path)
    offset = {"snapshot": "s1", "position": "0/16B3748"}
    write_checkpoint(store.root / "0", planned={0: json.dumps(offset)}, committed=[0])
    assert store.read(SOURCE) == [{"partition": {"server": "shop"}, "offset": offset}]
    moved = {"snapshot": "s1", "position": "0/2000000"}
    store.alter(SOURCE, {"partition": {"server": "shop"}, "offset": moved})
    assert store.read(SOURCE) == [{"partition": {"server": "shop"}, "offset": moved}]
    with pytest.raises(ConnectRequestError, match="must have the keys position, snapshot") as raised:
        store.alter(SOURCE, {"partition": {"server": "shop"}, "offset": {"lsn": 1}})
    assert raised.value.status == 400
    store.alter(SOURCE, {"partition": {"server": "shop"}, "offset": None})
    assert store.read(SOURCE) == []


def test_altered_offsets_are_a_new_checkpoint_of_the_same_query_after_the_last_batch(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_checkpoint(store.root / "0", planned={6: positions(p0=5), 7: positions(p0=9, p1=2)}, committed=[6, 7])
    before = {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}
    store.alter(SINK, topic("orders", 0, 1), topic("customers", 2, 4))
    assert store.read(SINK) == [topic("customers", 2, 4), topic("orders", 0, 1), topic("orders", 1, 2)]
    assert {path: path.read_bytes() for path in before} == before
    location = store.location()
    assert location == store.root / "1"
    assert sorted(str(path.relative_to(location)) for path in location.rglob("*") if path.is_file()) == [
        "_complete",
        "commits/7",
        "commits/8",
        "metadata",
        "offsets/7",
        "offsets/8",
        "sources/0/0",
    ]
    assert (location / "metadata").read_text() == '{"id":"the-query"}'
    assert (location / "offsets/7").read_text() == (store.root / "0/offsets/7").read_text()
    assert (location / "offsets/8").read_text().splitlines()[:2] == ["v1", METADATA]


def test_a_partition_that_is_reset_begins_at_its_log_start_offset(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_checkpoint(store.root / "0", planned={0: positions(p0=5, p1=6)}, committed=[0])
    store.alter(SINK, topic("orders", 1, None))
    assert store.read(SINK) == [topic("orders", 0, 5), topic("orders", 1, 3)]


def test_a_partition_in_an_unfinished_batch_must_be_named(tmp_path: Path) -> None:
    """The batch may have been delivered or not: going on from either end could lose or repeat its records."""
    store = Store(tmp_path)
    planned = {6: positions(p0=5, p1=7), 7: positions(p0=9, p1=7)}
    write_checkpoint(store.root / "0", planned=planned, committed=[6])
    with pytest.raises(ConnectRequestError, match="orders, kafka_partition: 0") as raised:
        store.alter(SINK, topic("orders", 1, 1))
    assert raised.value.status == 409
    assert store.location() == store.root / "0"
    store.alter(SINK, topic("orders", 0, 9))
    assert store.read(SINK) == [topic("orders", 0, 9), topic("orders", 1, 7)]
    assert (store.location() / "offsets/8").exists()


@pytest.mark.parametrize(
    "change",
    [
        topic("payments", 0, 1),
        {"partition": {"kafka_topic": "orders"}, "offset": {"kafka_offset": 1}},
        {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": -1}},
        {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"offset": 1}},
        {"partition": {"server": "shop"}, "offset": {}},
    ],
)
def test_a_change_that_fits_nothing_is_refused(tmp_path: Path, change: Mapping[str, Any]) -> None:
    store = Store(tmp_path)
    write_checkpoint(store.root / "0", planned={0: positions(p0=5)}, committed=[0])
    with pytest.raises(ConnectRequestError) as raised:
        store.alter(SINK, change)
    assert raised.value.status == 400
    assert store.location() == store.root / "0"


def test_offsets_of_a_connector_that_never_ran_cannot_be_altered(tmp_path: Path) -> None:
    with pytest.raises(ConnectRequestError, match="Start it once"):
        Store(tmp_path).alter(SINK, topic("orders", 0, 1))


def test_a_reset_is_an_empty_checkpoint(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.reset()
    assert store.location() == store.root / "0"
    write_checkpoint(store.root / "0", planned={0: positions(p0=5)}, committed=[0])
    store.alter(SINK, topic("orders", 0, 1))
    assert store.staging() == f"{store.root}/staging-0"
    store.reset()
    assert store.location() == store.root / "2"
    assert store.staging() == f"{store.root}/staging-2"
    assert store.read(SINK) == []
    store.reset()
    assert store.location() == store.root / "2"


def test_a_change_that_did_not_complete_does_not_count_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_checkpoint(store.root / "0", planned={0: positions(p0=5)}, committed=[0])
    write_checkpoint(store.root / "1", planned={1: positions(p0=1)}, committed=[])
    assert store.location() == store.root / "0"
    store.alter(SINK, topic("orders", 0, 2))
    assert store.location() == store.root / "2"


def test_a_connector_with_several_queries(tmp_path: Path) -> None:
    store = Store(tmp_path)
    offset = {"position": 1}
    write_checkpoint(store.root / "0/a", planned={3: json.dumps(offset)}, committed=[3])
    write_checkpoint(store.root / "0/b", planned={4: json.dumps(offset)}, committed=[4])
    a, b = {"server": "shop", "query": "a"}, {"server": "shop", "query": "b"}
    assert store.read(SOURCE) == [{"partition": a, "offset": offset}, {"partition": b, "offset": offset}]
    store.alter(SOURCE, {"partition": b, "offset": {"position": 9}})
    assert store.read(SOURCE) == [{"partition": a, "offset": offset}, {"partition": b, "offset": {"position": 9}}]
    assert (store.location() / "a/offsets/3").exists()
    assert (store.location() / "b/offsets/5").exists()


def test_an_unknown_version_of_the_offset_log_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_checkpoint(store.root / "0", planned={0: positions(p0=5)}, committed=[0])
    (store.root / "0/offsets/0").write_text("v2\n{}\n{}")
    with pytest.raises(ConnectRequestError, match="version 'v2'"):
        store.read(SINK)


NAMES = {"my lines": "my=20lines", "shop@eu": "shop=40eu", "größe": "gr=C3=B6=C3=9Fe", "a/b": "a=2Fb", "a=b": "a=3Db"}


@pytest.mark.parametrize(
    ("name", "directory"), [*NAMES.items(), ("..", "=2E=2E"), ("orders.v1_x-y~", "orders.v1_x-y~")]
)
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_name_that_needs_quoting_has_the_directory_that_spark_writes(
    tmp_path: Path, scheme: str, name: str, directory: str
) -> None:
    """Hadoop's Path decodes no percent signs, neither in the name nor in storage.location."""
    assert directory_name(name) == directory
    root = tmp_path / "a%20b"
    store = CheckpointStore(f"{scheme}{root}", Store(tmp_path)._earliest)
    places = asyncio.run(store.places(name))
    assert places.checkpoint == f"{scheme}{root}/checkpoints/{directory}/0"
    as_spark = root / "checkpoints" / directory / "0"
    write_checkpoint(as_spark, planned={0: positions(p0=5)}, committed=[0])
    assert asyncio.run(store.read(name, SINK)) == [topic("orders", 0, 5)]
    assert query_id_of(places.checkpoint) == "the-query"
    asyncio.run(store.reset(name))
    assert asyncio.run(store.read(name, SINK)) == []
    assert (root / "checkpoints" / directory / "1" / "_complete").exists()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_directory_of_an_earlier_release_is_found(tmp_path: Path, scheme: str) -> None:
    store = CheckpointStore(f"{scheme}{tmp_path}", Store(tmp_path)._earliest)
    write_checkpoint(tmp_path / "checkpoints/my%20lines/0", planned={0: positions(p0=5)}, committed=[0])
    places = asyncio.run(store.places("my lines"))
    assert places.checkpoint == f"{scheme}{tmp_path}/checkpoints/my%20lines/0"
    assert query_id_of(places.checkpoint) == "the-query"
    assert asyncio.run(store.read("my lines", SINK)) == [topic("orders", 0, 5)]
    asyncio.run(store.reset("my lines"))
    assert asyncio.run(store.places("my lines")).checkpoint.endswith("/my%20lines/1")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/my%20lines?x#y", "/data/my%20lines?x#y"),
        ("file:/data/my%20lines", "/data/my%20lines"),
        ("file:///data/my%20lines?x", "/data/my%20lines?x"),
        ("file://host/data/größe", "/data/größe"),
        ("s3://bucket/my%20lines", None),
        ("hdfs://name/x", None),
    ],
)
def test_the_local_path_of_a_location(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_the_path_on_another_file_system_is_not_decoded_either() -> None:
    system, path = open_location("s3://key:se%2Fcret@bucket/my%20lines/größe?region=eu-west-1&scheme=http")
    assert (system.type_name, path, system.region) == ("s3", "bucket/my%20lines/größe", "eu-west-1")
