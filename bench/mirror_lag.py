"""Shell: `python -m bench.mirror_lag SOURCE TARGET TOPIC COPY RATE SECONDS BYTES`: the lag of a mirror.

A process of its own: a producer of librdkafka writes RATE MB/s into TOPIC, and a read_committed consumer reads COPY.
Prints {"records": n, "ms": [...]}: the time from a record's timestamp to its arrival. The first seconds do not count.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

PARTITIONS: Final = 8
WARM_UP_S: Final = 3.0
TICK_S: Final = 0.005
IDLE_S: Final = 15.0


def main() -> None:
    source, target, topic, copy, rate, seconds, size = sys.argv[1:]
    consumer = Consumer(
        {"bootstrap.servers": target, "group.id": "lag", "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
    )
    ends = [
        TopicPartition(copy, p, consumer.get_watermark_offsets(TopicPartition(copy, p), timeout=30)[1])
        for p in range(PARTITIONS)
    ]
    consumer.assign(ends)
    consumer.poll(0.5)
    count = int(float(rate) * 1e6 * float(seconds) / int(size))
    began_ms = time.time() * 1000
    sender = threading.Thread(target=_send, args=(source, topic, float(rate), count, int(size)))
    sender.start()
    lags: list[float] = []
    arrived = 0
    last = time.monotonic()
    while arrived < count and time.monotonic() < last + IDLE_S:
        for message in consumer.consume(1_000, 0.01):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise SystemExit(str(error))
                continue
            now = time.time() * 1000
            arrived += 1
            last = time.monotonic()
            _, sent = message.timestamp()
            if sent > began_ms + WARM_UP_S * 1000:
                lags.append(now - sent)
    sender.join()
    consumer.close()
    if arrived < count:
        raise SystemExit(f"{arrived} of {count} records arrived")
    print(json.dumps({"records": arrived, "ms": lags}))


def _send(source: str, topic: str, rate: float, count: int, size: int) -> None:
    """Records at a constant rate, spread over the partitions."""
    producer = Producer({"bootstrap.servers": source, "linger.ms": 5, "acks": "all"})
    value = b"abcdefgh" * (size // 8)
    began, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - began) * rate * 1e6 / size))
        while sent < due:
            producer.produce(topic, value, partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)  # the rate of the load
    producer.flush(30)


if __name__ == "__main__":
    main()
