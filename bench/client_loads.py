"""Shell: one load of one client in a process of its own: `python -m bench.client_loads CLIENT LOAD BOOTSTRAP {json}`.

The clock of a load runs from its first record to its last acknowledgement, or from the first poll to the last record;
imports, connecting and the first metadata are not counted. CPU is this process's, all threads. Every client gets the
same settings, as far as it has them: `acks=all`, idempotence, `linger.ms=5`, batches of 128 KB, no compression. The
consumers have their own defaults.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

BATCH: Final = 131_072
LINGER_MS: Final = 5
WARM_UP: Final = 200

Result = dict[str, float]
Load = Callable[..., Result]


class Clock:
    """Wall time and CPU time between its making and `result`. What the imports left behind is collected before."""

    def __init__(self) -> None:
        gc.collect()
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def result(self, count: int) -> Result:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {"records": count / wall, "cpu_us": cpu / count * 1e6}


def values(size: int) -> list[bytes]:
    """A thousand different values."""
    rng = random.Random(7)
    return [rng.randbytes(size // 2).hex().encode().ljust(size, b".")[:size] for _ in range(1_000)]


def percentiles(times: list[float]) -> Result:
    ordered = sorted(times[WARM_UP:])
    return {"p50_us": ordered[len(ordered) // 2] * 1e6, "p99_us": ordered[int(len(ordered) * 0.99)] * 1e6}


# -- barnabas ----------------------------------------------------------------------------------------------------------


def _run(work: Awaitable[Result]) -> Result:
    async def main() -> Result:
        return await work

    import uvloop

    return uvloop.run(main())


def _barnabas_settings(bootstrap: str, linger: int = LINGER_MS) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, "linger.ms": linger, "batch.size": BATCH}


def barnabas_produce(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    from barnabas import AsyncProducer

    async def run() -> Result:
        payload = values(size)
        async with AsyncProducer(_barnabas_settings(bootstrap)) as producer:
            await producer.send_and_wait(topic, payload[0])
            clock = Clock()
            send = producer.send
            for number in range(count):
                await send(topic, payload[number % 1_000])
            await producer.flush()
            return clock.result(count)

    return _run(run())


def barnabas_blocking_produce(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    from barnabas import Producer

    payload = values(size)
    with Producer(_barnabas_settings(bootstrap)) as producer:
        producer.send_and_wait(topic, payload[0])
        clock = Clock()
        send = producer.send
        for number in range(count):
            send(topic, payload[number % 1_000])
        producer.flush()
        return clock.result(count)


def barnabas_columns_produce(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    """Tables of 20,000 rows, four on their way at a time, as a pipeline would."""
    import pyarrow as pa

    from barnabas import AsyncProducer

    async def run() -> Result:
        rows = 20_000
        payload = values(size)
        table = pa.table({"value": [payload[number % 1_000] for number in range(rows)]})
        async with AsyncProducer(_barnabas_settings(bootstrap)) as producer:
            await producer.send_arrow(topic, table.slice(0, 1_000))
            clock = Clock()
            under_way: deque[asyncio.Task[object]] = deque()
            for sent in range(0, count, rows):
                if len(under_way) == 4:
                    await under_way.popleft()
                part = table.slice(0, min(rows, count - sent))
                under_way.append(asyncio.create_task(producer.send_arrow(topic, part)))
            for task in under_way:
                await task
            return clock.result(count)

    return _run(run())


def barnabas_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    from barnabas import AsyncConsumer, TopicPartition

    async def run() -> Result:
        async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            await consumer.partitions_for(topic)
            clock = Clock()
            seen = touched = 0
            while seen < count:
                for record in await consumer.poll(5_000):
                    touched += len(record.value)
                    seen += 1
            assert touched == seen * size
            return clock.result(seen)

    return _run(run())


def barnabas_blocking_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    from barnabas import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        consumer.partitions_for(topic)
        clock = Clock()
        seen = touched = 0
        for record in consumer:
            touched += len(record.value)
            seen += 1
            if seen >= count:
                break
        assert touched == seen * size
        return clock.result(seen)


def barnabas_columns_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    import pyarrow.compute as pc

    from barnabas import AsyncConsumer, TopicPartition

    async def run() -> Result:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(settings) as consumer:  # compiles, or loads, what decodes columns
            consumer.assign([TopicPartition(topic, 0)])
            assert await consumer.poll_arrow(5_000) is not None
        async with AsyncConsumer(settings) as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            await consumer.partitions_for(topic)
            clock = Clock()
            seen = touched = 0
            while seen < count:
                batch = await consumer.poll_arrow(5_000)
                assert batch is not None
                touched += pc.sum(pc.binary_length(batch["value"])).as_py()
                seen += batch.num_rows
            assert touched == seen * size
            return clock.result(seen)

    return _run(run())


def barnabas_raw_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    """The ceiling for any consumer on this machine: batches are received and walked over, no record is opened."""
    from barnabas import TopicPartition
    from barnabas.client import Cluster
    from barnabas.client.fetching import ConsumerFetchConfig
    from barnabas.client.options import ClusterConfig
    from barnabas.client.partition_reader import OffsetRange, PartitionReader

    async def run() -> Result:
        async with Cluster(ClusterConfig.of(bootstrap_servers=bootstrap)) as cluster:
            await cluster.topic(topic)
            reader = PartitionReader(cluster, ConsumerFetchConfig(partition_max_bytes=4 * 1024 * 1024))
            ranges = [OffsetRange(TopicPartition(topic, index), 0, count) for index in range(partitions)]
            clock = Clock()
            seen = 0
            async for batches in reader.batches(ranges):
                seen += batches.end - batches.position
                if seen >= count:
                    break
            return clock.result(seen)

    return _run(run())


def barnabas_latency(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    from barnabas import AsyncProducer

    async def run() -> Result:
        payload = b"x" * size
        times = []
        async with AsyncProducer(_barnabas_settings(bootstrap, 0)) as producer:
            for _ in range(count + WARM_UP):
                began = time.perf_counter()
                await producer.send_and_wait(topic, payload)
                times.append(time.perf_counter() - began)
        return percentiles(times)

    return _run(run())


def barnabas_blocking_latency(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    from barnabas import Producer

    payload = b"x" * size
    times = []
    with Producer(_barnabas_settings(bootstrap, 0)) as producer:
        for _ in range(count + WARM_UP):
            began = time.perf_counter()
            producer.send_and_wait(topic, payload)
            times.append(time.perf_counter() - began)
    return percentiles(times)


# -- confluent-kafka ---------------------------------------------------------------------------------------------------


def _confluent_settings(bootstrap: str, linger: int = LINGER_MS) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": linger,
        "batch.size": BATCH,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 262_144,
    }


def confluent_produce(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    from confluent_kafka import Producer

    payload = values(size)
    producer = Producer(_confluent_settings(bootstrap))
    producer.produce(topic, payload[0])
    producer.flush(30)
    clock = Clock()
    produce = producer.produce
    for number in range(count):
        while True:
            try:
                produce(topic, payload[number % 1_000])
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(120) == 0
    return clock.result(count)


def confluent_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.list_topics(topic, 30)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    clock = Clock()
    seen = touched = 0
    while seen < count:
        for message in consumer.consume(min(500, count - seen), 5.0):
            touched += len(message.value() or b"")
            seen += 1
    assert touched == seen * size
    return clock.result(seen)


def confluent_latency(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    from confluent_kafka import Producer

    payload = b"x" * size
    times = []
    producer = Producer(_confluent_settings(bootstrap, 0))
    for _ in range(count + WARM_UP):
        began = time.perf_counter()
        producer.produce(topic, payload)
        producer.flush(10)
        times.append(time.perf_counter() - began)
    return percentiles(times)


# -- kafka-python ------------------------------------------------------------------------------------------------------


def _python_producer(bootstrap: str, linger: int = LINGER_MS) -> Any:
    from kafka import KafkaProducer

    return KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=linger, batch_size=BATCH
    )


def python_produce(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    payload = values(size)
    producer = _python_producer(bootstrap)
    producer.send(topic, payload[0]).get(30)
    clock = Clock()
    for number in range(count):
        producer.send(topic, payload[number % 1_000])
    producer.flush(120)
    result = clock.result(count)
    producer.close()
    return result


def python_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.partitions_for_topic(topic)
    consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
    clock = Clock()
    seen = touched = 0
    while seen < count:
        for records in consumer.poll(5_000).values():
            for record in records:
                touched += len(record.value)
                seen += 1
    assert touched == seen * size
    result = clock.result(seen)
    consumer.close()
    return result


def python_latency(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    payload = b"x" * size
    times = []
    producer = _python_producer(bootstrap, 0)
    for _ in range(count + WARM_UP):
        began = time.perf_counter()
        producer.send(topic, payload).get(30)
        times.append(time.perf_counter() - began)
    producer.close()
    return percentiles(times)


# -- aiokafka ----------------------------------------------------------------------------------------------------------


def _aio_producer(bootstrap: str, linger: int = LINGER_MS) -> Any:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # it has none

    return AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=linger, max_batch_size=BATCH
    )


def aio_produce(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    async def run() -> Result:
        payload = values(size)
        async with _aio_producer(bootstrap) as producer:
            await producer.send_and_wait(topic, payload[0])
            clock = Clock()
            send = producer.send
            for number in range(count):
                await send(topic, payload[number % 1_000])
            await producer.flush()
            return clock.result(count)

    return _run(run())


def aio_consume(bootstrap: str, *, topic: str, size: int, count: int, partitions: int) -> Result:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> Result:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
            clock = Clock()
            seen = touched = 0
            while seen < count:
                for records in (await consumer.getmany(timeout_ms=5_000, max_records=500)).values():
                    for record in records:
                        touched += len(record.value)
                        seen += 1
            assert touched == seen * size
            return clock.result(seen)

    return _run(run())


def aio_latency(bootstrap: str, *, topic: str, size: int, count: int) -> Result:
    async def run() -> Result:
        payload = b"x" * size
        times = []
        async with _aio_producer(bootstrap, 0) as producer:
            for _ in range(count + WARM_UP):
                began = time.perf_counter()
                await producer.send_and_wait(topic, payload)
                times.append(time.perf_counter() - began)
        return percentiles(times)

    return _run(run())


LOADS: Final[dict[str, dict[str, Load]]] = {
    "produce": {
        "barnabas": barnabas_produce,
        "barnabas, blocking": barnabas_blocking_produce,
        "barnabas, columns": barnabas_columns_produce,
        "confluent-kafka": confluent_produce,
        "kafka-python": python_produce,
        "aiokafka": aio_produce,
    },
    "consume": {
        "barnabas": barnabas_consume,
        "barnabas, blocking": barnabas_blocking_consume,
        "barnabas, columns": barnabas_columns_consume,
        "barnabas, no record opened": barnabas_raw_consume,
        "confluent-kafka": confluent_consume,
        "kafka-python": python_consume,
        "aiokafka": aio_consume,
    },
    "latency": {
        "barnabas": barnabas_latency,
        "barnabas, blocking": barnabas_blocking_latency,
        "confluent-kafka": confluent_latency,
        "kafka-python": python_latency,
        "aiokafka": aio_latency,
    },
}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[2]][sys.argv[1]](sys.argv[3], **json.loads(sys.argv[4]))))
