"""Tiered storage: writes a topic with a short local log, waits for the copies, and reads all beside a local topic.

    python -m bench.tiered [--mib 256] [--local-mib 32]

Prints the throughput of a consumer that reads each topic from its start. The store is a directory beside the data, so
that the cost of the broker's path is measured, not that of a network. Every record that is read is compared with the
one that was written.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.testing.process import BrokerProcess

MIB: Final = 1 << 20
VALUE_BYTES: Final = 1024
_RANDOM: Final = random.Random(0).randbytes(MIB)
SEGMENT_MIB: Final = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--local-mib", type=int, default=32)
    options = parser.parse_args()
    count = options.mib * MIB // VALUE_BYTES
    with tempfile.TemporaryDirectory() as folder:
        settings = [
            "remote.log.storage.system.enable=true",
            f"rsm.config.storage.root={folder}/store",
            "remote.log.manager.task.interval.ms=500",
            "log.retention.check.interval.ms=500",
            "log.initial.task.delay.ms=500",
            "rlmm.config.remote.log.metadata.topic.num.partitions=1",
        ]
        Path(folder, "store").mkdir()
        with BrokerProcess(Path(folder, "data"), settings=settings) as broker:
            address = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": address})
            shared = {"segment.bytes": str(SEGMENT_MIB * MIB), "retention.ms": "-1"}
            tiered = {"remote.storage.enable": "true", "local.retention.bytes": str(options.local_mib * MIB)}
            for name, configs in (("local", shared), ("tiered", shared | tiered)):
                admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(30)
                _report(f"write {name}", options.mib, _write(address, name, count))
            began = time.perf_counter()
            while _local_bytes(broker.data_dir / "tiered-0") > (options.local_mib + 2 * SEGMENT_MIB) * MIB:
                time.sleep(0.1)
            print(f"{'copied and deleted locally':28} after {time.perf_counter() - began:.1f} s more")
            for name in ("local", "tiered"):
                _report(f"read {name}", options.mib, _read(address, name, count))


def _report(what: str, mib: int, seconds: float) -> None:
    print(f"{what:28} {mib / seconds:8.0f} MiB/s  {seconds:6.1f} s")


def _local_bytes(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
            total += path.stat().st_size
    return total


def _value(number: int) -> bytes:
    """The value of a record: its number, and random bytes from a place that the number decides."""
    begin = number * 1031 % (MIB - VALUE_BYTES)
    return number.to_bytes(8) + _RANDOM[begin : begin + VALUE_BYTES - 8]


def _write(address: str, topic: str, count: int) -> float:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "batch.size": 500_000})
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, _value(number))
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    return time.perf_counter() - began


def _read(address: str, topic: str, count: int) -> float:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    began, following = time.perf_counter(), 0
    while following < count:
        for message in consumer.consume(5_000, 1.0):
            if message.error() is None:
                if message.offset() != following or message.value() != _value(following):
                    raise SystemExit(
                        f"{topic}: offset {message.offset()} is not the record {following} that was written"
                    )
                following += 1
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


if __name__ == "__main__":
    main()
