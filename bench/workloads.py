"""Shell: what is done to a broker, by public clients, and counted. Each workload runs in a process of its own.

`python -m bench.workloads NAME BOOTSTRAP {json}` prints one JSON object; `run_workload` is that call.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from tests.progress import Standstill, flush

Result = dict[str, float]
CLIENT_VARIABLE = "BARNABAS_BENCH_CLIENT"
"""The environment variable with further settings of librdkafka's clients, as a JSON object."""
JAVA_VARIABLE = "BARNABAS_BENCH_JAVA_CLIENT"
"""The same for Kafka's Java clients: the path of a properties file."""


def run_workload(name: str, bootstrap: str, **arguments: Any) -> Result:
    """Runs one workload in a fresh process and gives what it counted."""
    command = [sys.executable, "-m", "bench.workloads", name, bootstrap, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"workload {name} failed:\n{done.stderr[-3000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def _client(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, **json.loads(os.environ.get(CLIENT_VARIABLE, "{}"))}


def create_topic(bootstrap: str, *, topic: str, partitions: int, replicas: int = 1) -> Result:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient(_client(bootstrap))
    for future in admin.create_topics([NewTopic(topic, partitions, replicas)]).values():
        future.result(30)
    return {}


def _payloads(size: int) -> list[bytes]:
    """Values that compress about as text does: half random letters, half repeated."""
    rng = random.Random(7)
    return [
        (rng.randbytes(size // 4).hex().encode() + b"the quick brown fox " * (size // 20 + 1))[:size]
        for _ in range(1000)
    ]


def produce(
    bootstrap: str, *, topic: str, size: int, batch: int, codec: str, megabytes: int, acks: str = "all"
) -> Result:
    """Throughput of librdkafka's producer; the clock runs from the second record to the last acknowledgement. The
    waits for room in a full queue count: the broker is slower than the producer.

    The first record is acknowledged before the clock starts. An idempotent producer of librdkafka often waits for
    500 ms before it requests its producer id: the timer of its state machine. It waits if the metadata are answered
    before the connection to the broker that they name is up, so that the faster broker would look like the slower
    one."""
    payloads = _payloads(size)
    count = megabytes * 1_000_000 // size
    failures: list[str] = []
    producer = Producer(
        {
            **_client(bootstrap),
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failures.append(str(error)),
            "acks": acks,
            "compression.type": codec,
            "batch.size": batch,
            "linger.ms": 5,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 262_144,
            "message.max.bytes": max(1_000_000, batch),
            "enable.idempotence": True,
        }
    )
    producer.produce(topic, payloads[0])
    flush(producer)  # see above
    began = time.perf_counter()
    send = producer.produce
    for i in range(count):
        try:
            send(topic, payloads[i % 1000])
        except BufferError:
            _send_when_there_is_room(producer, topic, payloads[i % 1000])
    flush(producer)
    seconds = time.perf_counter() - began
    if failures:
        raise RuntimeError(f"{len(failures)} records were not acknowledged: {failures[0]}")
    return {"records": count / seconds, "mb": count * size / seconds / 1e6}


def _send_when_there_is_room(producer: Producer, topic: str, value: bytes) -> None:
    """Wait until the producer's queue, which is full by records or by bytes, takes the record. Fails only when no
    record at all has been acknowledged for a long time."""
    standstill = Standstill("the producer's queue has room")
    while True:
        standstill.check(len(producer))
        producer.poll(0.05)
        try:
            return producer.produce(topic, value)
        except BufferError:
            continue


def consume(bootstrap: str, *, topic: str, size: int, megabytes: int, partitions: int) -> Result:
    """Throughput of librdkafka's consumer over what `produce` wrote."""
    from confluent_kafka import Consumer, TopicPartition

    count = megabytes * 1_000_000 // size
    consumer = Consumer(
        {
            **_client(bootstrap),
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 131_072,
            "queued.min.messages": 1_000_000,
            "fetch.max.bytes": 52_428_800,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    seen = 0
    began = time.perf_counter()
    while seen < count:
        messages = consumer.consume(10_000, 10.0)
        if not messages:
            raise RuntimeError(f"nothing more after {seen} of {count} records")
        seen += len(messages)
    seconds = time.perf_counter() - began
    return {"records": seen / seconds, "mb": seen * size / seconds / 1e6}


def latency(bootstrap: str, *, topic: str, count: int, size: int) -> Result:
    """One record at a time: the time from produce() to its acknowledgement (acks=all, linger 0)."""
    producer = Producer({**_client(bootstrap), "linger.ms": 0, "acks": "all", "socket.nagle.disable": True})
    payload = b"x" * size
    times: list[float] = []
    for _ in range(count + 200):
        began = time.perf_counter()
        producer.produce(topic, payload)
        if producer.flush(60):
            raise RuntimeError("a record was not acknowledged within 60 s")
        times.append(time.perf_counter() - began)
    times = sorted(times[200:])
    return {"p50_us": times[len(times) // 2] * 1e6, "p99_us": times[int(len(times) * 0.99)] * 1e6}


def java_produce(bootstrap: str, *, topic: str, size: int, batch: int, codec: str, megabytes: int) -> Result:
    """Kafka's own ProducerPerformance."""
    from tests.interop.jars import kafka_classpath

    count = megabytes * 1_000_000 // size
    command = ["java", "-Xmx512m", "-cp", kafka_classpath(), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
    command += ["--producer-props", f"bootstrap.servers={bootstrap}", f"batch.size={batch}"]
    command += [f"compression.type={codec}", "linger.ms=5", "buffer.memory=67108864"]
    if JAVA_VARIABLE in os.environ:
        command += ["--producer.config", os.environ[JAVA_VARIABLE]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    last = done.stdout.strip().splitlines()[-1]  # N records sent, X records/sec (Y MB/sec), ...
    records = float(last.split(" records/sec")[0].rsplit(" ", 1)[1])
    return {"records": records, "mb": records * size / 1e6}


WORKLOADS: dict[str, Callable[..., Result]] = {
    "create_topic": create_topic,
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "java_produce": java_produce,
}

if __name__ == "__main__":
    print(json.dumps(WORKLOADS[sys.argv[1]](sys.argv[2], **json.loads(sys.argv[3]))))
