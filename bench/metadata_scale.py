"""Shell: a big cluster's metadata in one process: `python -m bench.metadata_scale [topics] [partitions per topic]`.

Times are for 10,000 topics of 100 partitions unless told otherwise. Budget, on one core: an image from a snapshot
within a minute, 1 KB of memory a partition, a change of one partition within a millisecond, a broker fenced within a
few seconds.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from uuid import UUID

from barnabas.server.metadata.controller.brokers import decide_fence_broker
from barnabas.server.metadata.controller.partitions import decide_balance_leaders, decide_unclean_elections
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import bootstrap_records
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta, replayed
from barnabas.server.metadata.loader import Loader
from barnabas.server.metadata.ports import CommittedBatch, LoadedSnapshot
from barnabas.server.metadata.publish import Publisher
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.codec import decode_record, encode_record
from barnabas.server.metadata.records.nodes import RegisterBrokerRecord
from barnabas.server.metadata.records.topics import PartitionChangeRecord, PartitionRecord, TopicRecord
from barnabas.server.metadata.snapshot import image_records
from barnabas.server.node.typed_configs import CONTROLLER

BROKERS = 30
REPLICAS = 3


def cluster(topics: int, partitions: int) -> Iterator[MetadataRecord]:
    yield from bootstrap_records()
    directories = [UUID(int=1000 + broker) for broker in range(BROKERS)]
    for broker in range(BROKERS):
        yield RegisterBrokerRecord(
            broker_id=broker, broker_epoch=broker, fenced=False, rack=f"r{broker % 3}", log_dirs=[directories[broker]]
        )
    for number in range(topics):
        topic_id = UUID(int=(number + 1) << 64 | number)
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(partitions):
            replicas = [(number + index + step) % BROKERS for step in range(REPLICAS)]
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                directories=[directories[broker] for broker in replicas],
            )


@contextmanager
def timed(what: str) -> Iterator[None]:
    began, worked = time.perf_counter(), time.process_time()
    yield
    took, worked = time.perf_counter() - began, time.process_time() - worked
    print(f"{what:<52} {took:9.3f} s, of the processor {worked:9.3f} s", flush=True)


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize() / 1e6


def main(topics: int, partitions: int) -> None:
    print(f"{topics} topics x {partitions} partitions, {REPLICAS} replicas, {BROKERS} brokers")
    encoded: list[bytes] = []
    with timed("records encoded"):
        encoded = [encode_record(record) for record in cluster(topics, partitions)]
    print(f"{'bytes of records':<52} {sum(map(len, encoded)) / 1e6:9.1f} MB")
    before = memory_mb()
    publisher = Publisher(ClusterImage(cluster_id="c"))
    loader = Loader(publisher)
    with timed("a snapshot decoded and loaded: image"):
        loader.on_snapshot(LoadedSnapshot(len(encoded), 1, 0, cast("Sequence[MetadataRecord]", Decoded(encoded))))
    gc.collect()
    image = publisher.image
    print(f"{'memory of the image':<52} {memory_mb() - before:9.1f} MB")
    topic = image.topics.get("topic-7")
    assert topic is not None
    with timed("1,000 committed changes of one partition each"):
        for step in range(1_000):
            change = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=step % partitions, isr=[1, 2])
            loader.on_commit(CommittedBatch(len(encoded) + step, 1, 0, (change,)))
    with timed("everything, for a subscriber that comes late"):
        ClusterDelta.everything(publisher.image)
    with timed("image written as records of a snapshot"):
        count = sum(len(encode_record(record)) > 0 for record in image_records(publisher.image))
    assert count >= topics * partitions
    decisions(publisher.image)


class Decoded:
    """Records as they are read, one at a time."""

    def __init__(self, encoded: list[bytes]) -> None:
        self._encoded = encoded

    def __iter__(self) -> Iterator[MetadataRecord]:
        return (decode_record(value) for value in self._encoded)


def decisions(image: ClusterImage) -> None:
    settings = CONTROLLER.from_defaults(node_id=1, static_config={})
    ctx = DecideContext(now_ms=0, rng=random.Random(1), settings=settings)
    with timed("fencing one of the brokers: decided"):
        fenced = decide_fence_broker(image, 7, ctx)
    with timed(f"  and its {len(fenced.records)} records applied"):
        after = replayed(image, fenced.records)
    with timed("leaders balanced: nothing to do"):
        decide_balance_leaders(image, ctx)
    with timed("leaders balanced: 1,000 moved"):
        decide_balance_leaders(after, ctx)
    with timed("unclean elections: nothing to do"):
        decide_unclean_elections(image, ctx)


if __name__ == "__main__":
    given = [int(number) for number in sys.argv[1:]]
    main(*(given or [10_000, 100]))
