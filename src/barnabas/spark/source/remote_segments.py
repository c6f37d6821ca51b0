"""Shell: runs in a worker: reads remote segments of a partition from the object store (`segments.store`).

    copies of the range -> for each: index, transaction indexes, snapshot -> batches, up to the readable end
                                                                             the rest of the range: files, or the broker

A copy never changes. It may be deleted meanwhile; then, and if the store fails, the broker is asked for the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol

from barnabas.core.errors import BarnabasError
from barnabas.core.objects.errors import ObjectMissingError
from barnabas.core.objects.ports import ObjectStore
from barnabas.protocol.records.log_files import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TXN_INDEX,
    AbortedTxn,
    SnapshotProducer,
    decode_aborted,
    decode_snapshot_producers,
)
from barnabas.spark.connection import LogClient
from barnabas.spark.source.fetched import FetchedRange
from barnabas.spark.source.options import SegmentStore
from barnabas.spark.source.planner import PartitionRange
from barnabas.spark.source.remote_plan import RemoteCopies, RemoteCopy
from barnabas.spark.source.segment_plan import ClosedSegments, readable_end
from barnabas.spark.source.segments import OpenSegment, OpenSegments, batches_of

log = logging.getLogger("barnabas.spark")


class Objects(Protocol):
    """The objects of remote segments."""

    def get(self, name: str, size: int, start: int) -> bytes:
        """At most `size` bytes from `start` on. Raises OSError or KafkaError."""
        ...

    def read(self, name: str) -> bytes:
        """A small object. Raises OSError or KafkaError; FileNotFoundError or ObjectMissingError if there is none."""
        ...


class DirectoryObjects:
    """Objects in a directory that the worker sees."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def get(self, name: str, size: int, start: int) -> bytes:
        fd = os.open(self._prefix + name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, start)
        finally:
            os.close(fd)

    def read(self, name: str) -> bytes:
        return Path(self._prefix + name).read_bytes()


class BucketObjects:
    """Objects in a bucket. The client's event loop waits for them."""

    def __init__(self, client: LogClient, store: ObjectStore, prefix: str) -> None:
        self._client = client
        self._store = store
        self._prefix = prefix

    def get(self, name: str, size: int, start: int) -> bytes:
        return self._client.run(self._store.get(self._prefix + name, start, start + size))

    def read(self, name: str) -> bytes:
        return self._client.run(self._store.read(self._prefix + name))


def open_objects(client: LogClient, store: SegmentStore) -> Objects:
    """The objects of the store. Raises ConfigError if the library for S3 is missing."""
    if store.bucket is None:
        return DirectoryObjects(store.prefix)
    return BucketObjects(client, _bucket(store), store.prefix)


@lru_cache(maxsize=16)
def _bucket(store: SegmentStore) -> ObjectStore:
    from barnabas.core.objects.cloud import open_s3

    assert store.bucket is not None, "otherwise it is a directory"
    return open_s3(
        bucket=store.bucket, region=store.region, endpoint=store.endpoint, path_style=store.endpoint is not None
    )


def read_remote(
    client: LogClient,
    store: SegmentStore,
    remote: RemoteCopies,
    wanted: PartitionRange,
    *,
    committed: bool,
    check_crcs: bool,
) -> Generator[FetchedRange, None, int]:
    """Yield the batches of a range that are in remote segments. Returns the offset from which on the range is to be
    read elsewhere; `wanted.start` if nothing can be read from the store."""
    position = wanted.start
    last = min(wanted.end, remote.local_start)
    try:
        objects = open_objects(client, store)
        for number, copy in enumerate(remote.copies):
            if position >= last:
                break
            if not copy.start <= position < copy.end:
                continue
            found = _open(objects, remote.copies[number : number + 2], last, committed=committed)
            bounds = PartitionRange(wanted.tp, position, found.end)
            for batches in batches_of(found, bounds):
                yield FetchedRange(bounds, batches, check_crcs)
                position = min(batches.end, found.end)
            if found.end < min(copy.end, last):
                break  # a transaction is open here
            position = found.end
    except (OSError, BarnabasError) as error:
        log.warning("segments.store: offsets of %s from %d on are read from the broker: %s", wanted.tp, position, error)
    return position


def _open(objects: Objects, copies: tuple[RemoteCopy, ...], end: int, *, committed: bool) -> OpenSegments:
    """The first of the copies, with the aborted transactions whose markers are in any of them."""
    copy, boundary = copies[0], copies[-1]
    segment = OpenSegment(
        copy.start, partial(objects.get, copy.name + LOG), copy.size, objects.read(copy.name + OFFSET_INDEX)
    )
    aborted: list[AbortedTxn] = []
    producers: list[SnapshotProducer] = []
    if committed:
        for each in copies:
            aborted += decode_aborted(_optional(objects, each), each.start)
        name = boundary.name + SNAPSHOT
        producers, _ = decode_snapshot_producers(objects.read(name), name)
    limit = min(copy.end, end)
    closed = ClosedSegments((copy.start,), boundary.end)
    return OpenSegments((segment,), tuple(aborted), readable_end(closed, limit, producers))


def _optional(objects: Objects, copy: RemoteCopy) -> bytes:
    if not copy.has_aborted:
        return b""
    try:
        return objects.read(copy.name + TXN_INDEX)
    except (FileNotFoundError, ObjectMissingError):
        return b""  # Kafka before 4.0 does not say that there is none
