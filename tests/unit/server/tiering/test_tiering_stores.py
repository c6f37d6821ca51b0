"""Object stores: files in a directory, and deadlines and repetitions around any store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from obstore.store import MemoryStore

from barnabas.core.config import ConfigError
from barnabas.core.objects.cloud import CloudObjectStore
from barnabas.server.storage.errors import DiskFullError
from barnabas.server.storage.fs import OsFileSystem
from barnabas.server.tiering.errors import ObjectMissingError, StoreUnavailableError
from barnabas.server.tiering.store.files import FileObjectStore
from barnabas.server.tiering.store.opening import open_store
from barnabas.server.tiering.store.retrying import RetryingStore
from barnabas.testing.sim.objects import ObjectFaults, SimObjectStore
from tests.unit.server.storage.memory_disk import MemoryDisk
from tests.unit.server.tiering.house import DISK, PATIENCE, run

NAME = "topic-id/0/00000000000000000000-segment.log"


async def parts(*data: bytes) -> AsyncIterator[bytes]:
    for each in data:
        yield each


def test_files_are_stored_read_and_deleted(tmp_path: Path) -> None:
    store = FileObjectStore(OsFileSystem(), str(tmp_path), DISK)

    async def main() -> None:
        await store.put(NAME, parts(b"one", b"two", b""))
        assert (await store.size(NAME), await store.get(NAME, 2, 5), await store.get(NAME, 4, 99)) == (6, b"etw", b"wo")
        assert await store.read(NAME) == b"onetwo"
        await store.delete(NAME)
        await store.delete(NAME)
        for call in (store.size(NAME), store.get(NAME, 0, 1), store.read(NAME)):
            with pytest.raises(ObjectMissingError, match=r"segment\.log does not exist in"):
                await call

    run(main)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_stored_file_survives_a_power_failure() -> None:
    disk = MemoryDisk()
    disk.mkdir("/store")
    disk.sync_dir("/")
    store = FileObjectStore(disk, "/store", DISK)
    run(lambda: store.put(NAME, parts(b"data")))
    disk.lose_power()
    assert run(lambda: store.get(NAME, 0, 99)) == b"data"


def test_a_file_is_not_an_object_before_it_is_complete() -> None:
    disk = MemoryDisk()
    store = FileObjectStore(disk, "/store", DISK)

    async def broken() -> AsyncIterator[bytes]:
        yield b"first"
        raise DiskFullError("no space")

    async def main() -> None:
        with pytest.raises(DiskFullError):
            await store.put(NAME, broken())
        with pytest.raises(ObjectMissingError):
            await store.size(NAME)
        await store.delete(NAME)

    run(main)
    assert disk.listdir("/store/topic-id/0") == []


def retrying(**faults: float) -> tuple[SimObjectStore, RetryingStore]:
    store = SimObjectStore(random.Random(3), ObjectFaults(**faults))
    return store, RetryingStore(store, replace(PATIENCE, attempts=20), random.Random(3))


def test_reads_and_deletions_are_repeated_with_a_pause() -> None:
    objects, store = retrying(fails=0.5)
    objects.objects[NAME] = b"data"

    async def main() -> None:
        for _ in range(3):
            assert (await store.get(NAME, 0, 2), await store.read(NAME)) == (b"da", b"data")
        assert await store.size(NAME) == 4
        await store.delete(NAME)

    run(main)
    assert len(objects.calls) > 5 and objects.objects == {}


def test_a_call_that_fails_each_time_is_given_up() -> None:
    objects, store = retrying(cut_off=True)
    with pytest.raises(StoreUnavailableError, match="failed at"):
        run(lambda: store.get(NAME, 0, 2))
    assert len(objects.calls) == 20


def test_a_call_without_an_answer_is_given_up_after_its_deadline() -> None:
    objects, store = retrying(hangs=1.0)
    with pytest.raises(StoreUnavailableError, match="did not respond to the size of"):
        run(lambda: store.size(NAME))
    assert len(objects.calls) == 20


def test_a_put_is_not_repeated_under_its_name() -> None:
    objects, store = retrying(cut_off=True)
    with pytest.raises(StoreUnavailableError):
        run(lambda: store.put(NAME, parts(b"data")))
    assert objects.calls == [("put", NAME)]


def test_objects_in_a_cloud_store_are_stored_read_and_deleted() -> None:
    store = CloudObjectStore(MemoryStore())

    async def main() -> None:
        await store.put(NAME, parts(b"one", b"two"))
        await store.put("empty", parts())
        assert (await store.size(NAME), await store.get(NAME, 2, 5), await store.get(NAME, 4, 99)) == (6, b"etw", b"wo")
        assert (await store.read(NAME), await store.read("empty")) == (b"onetwo", b"")
        await store.delete(NAME)
        await store.delete(NAME)
        for call in (store.size(NAME), store.get(NAME, 0, 1), store.read(NAME)):
            with pytest.raises(ObjectMissingError, match="does not exist in the object store"):
                await call

    asyncio.run(main())  # the library has threads of its own


def test_a_cloud_store_that_refuses_its_connections_is_reported() -> None:
    settings = {
        "storage.s3.bucket.name": "b",
        "storage.s3.region": "here",
        "storage.s3.endpoint.url": "http://127.0.0.1:1",
        "storage.aws.access.key.id": "a",
        "storage.aws.secret.access.key": "s",
    }
    opened = open_store(settings, MemoryDisk(), DISK)

    async def main() -> None:
        patience = replace(PATIENCE, timeout_ms=50, attempts=1)
        with pytest.raises(StoreUnavailableError):
            await RetryingStore(opened.store, patience, random.Random(1)).size(NAME)

    asyncio.run(main())


def test_the_store_of_the_configs_is_opened() -> None:
    opened = open_store({"storage.root": "/mnt/tier", "key.prefix": "kafka/"}, MemoryDisk(), DISK)
    assert isinstance(opened.store, FileObjectStore) and opened.prefix == "kafka/"
    assert isinstance(open_store({"storage.s3.bucket.name": "b"}, MemoryDisk(), DISK).store, CloudObjectStore)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "Set rsm.config.storage.root to a directory"),
        ({"storage.root": "tier"}, "is not an absolute path"),
        ({"storage.root": "/tier", "storage.s3.bucket.name": "b"}, "name two object stores"),
        ({"storage.s3.bucket.nam": "b"}, "rsm.config.storage.s3.bucket.nam is not a setting"),
        ({"storage.s3.bucket.name": "b", "storage.s3.path.style.access.enabled": "yes"}, "is not true or false"),
        ({"storage.s3.bucket.name": "b", "storage.aws.access.key.id": "a"}, "belong together"),
    ],
)
def test_configs_that_name_no_store_are_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_store(settings, MemoryDisk(), DISK)
