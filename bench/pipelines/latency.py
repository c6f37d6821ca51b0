"""Shell: the time from a record in to its result out, for `barnabas.stream` and Kafka Streams on the same broker.

One process produces records at a fixed rate and reads the results, both with librdkafka, which belongs to neither side.
Each value has the time at which it was sent. The consumer is read_committed, so a result counts when its transaction is
committed. The first third of the records warms up the programs and is not counted.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.pipelines.peers import kafka_streams, our_stream, streams_classpath
from bench.report import Sheet, number

PATIENCE_S = 60.0


@dataclass(frozen=True)
class LatencyLoad:
    """Records of one partition at a fixed rate."""

    rate: int = 200
    records: int = 3_000


def create(servers: str, *topics: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        future.result(60)


def drive(servers: str, source: str, target: str, load: LatencyLoad) -> list[float]:
    """Latencies in ms, sorted, without the warm-up."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(target, 0, 0)])
    feeder = threading.Thread(target=_feed, args=(servers, source, load), daemon=True)
    feeder.start()
    found: list[float] = []
    last = time.monotonic()
    while len(found) < load.records:
        for message in consumer.consume(500, timeout=0.05):
            value = message.value()
            if message.error() is None and value is not None:
                found.append((time.perf_counter_ns() - int(value.split()[0])) / 1e6)
                last = time.monotonic()
        if time.monotonic() - last > PATIENCE_S:
            raise RuntimeError(f"only {len(found)} of {load.records} results have come from {target}")
    feeder.join()
    consumer.close()
    return sorted(found[load.records // 3 :])


def _feed(servers: str, topic: str, load: LatencyLoad) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})
    began = time.perf_counter()
    for index in range(load.records):
        pause = began + index / load.rate - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        producer.produce(topic, f"{time.perf_counter_ns()} {'x' * 80}".encode())
        producer.poll(0)
    producer.flush(60)


def latency_sheet(servers: str, rounds: int, load: LatencyLoad) -> Sheet:
    """p50 and p99 of each program; the ratio is that of p99 to Kafka Streams with its default commit interval."""
    classpath = streams_classpath()
    found: dict[str, list[list[float]]] = {}
    for number_ in range(rounds):
        runs = {"barnabas.stream": our_stream}
        for name, run in runs.items():
            source, target = (f"{name}-{end}-{number_}" for end in ("in", "out"))
            create(servers, source, target)
            with run(servers, source, target):
                found.setdefault(name, []).append(drive(servers, source, target, load))
        for commit_ms in (100, 10) if classpath else ():
            name = f"Kafka Streams, commit.interval.ms={commit_ms}"
            source, target = (f"streams-{commit_ms}-{end}-{number_}" for end in ("in", "out"))
            create(servers, source, target)
            assert classpath is not None
            with kafka_streams(classpath, "map", servers, source, target, commit_ms):
                found.setdefault(name, []).append(drive(servers, source, target, load))
    rows = []
    base = found.get("Kafka Streams, commit.interval.ms=100")
    for name, rounds_ in found.items():
        p50, p99 = (_median([run[int(len(run) * q)] for run in rounds_]) for q in (0.5, 0.99))
        ratio = "" if base is None else number(_median([_p99(a) / _p99(b) for a, b in zip(rounds_, base, strict=True)]))
        rows.append((name, f"{number(p50)} ms", f"{number(p99)} ms", ratio))
    title = (
        f"From a record in to its committed result out, exactly once: a mapping at {load.rate} records/s, median of"
        f" {rounds} rounds; ratio of p99 to Kafka Streams' default, below 1 is faster"
    )
    return Sheet(title, ("", "p50", "p99", "/ Kafka Streams"), rows)


def _p99(run: list[float]) -> float:
    return run[int(len(run) * 0.99)]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
