"""The queue of one partition: what is sent again goes alone, in order, until nothing of it is left."""

from __future__ import annotations

from barnabas.client.producer.accumulator import Accumulator, ProducerIdentity
from barnabas.client.producer.delivery import RecordFuture
from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.compression import CompressionType

ME = ProducerIdentity(1, 0)


def test_a_later_success_does_not_end_the_recovery_of_earlier_batches() -> None:
    """Batches 0 and 1 fail after they were written, 2 succeeds. Sent side by side, 1 could succeed and 0 fail again;
    five batches later the broker would not know 0 any more, and it would be written twice.
    """
    accumulator = Accumulator(
        batch_size=1, buffer_memory=1 << 20, linger_s=0.0, delivery_timeout_s=60.0, codec=CompressionType.NONE
    )
    queue = accumulator.queue(TopicPartition("t", 0))
    for number in range(6):
        accumulator.append(RecordFuture(), queue, None, b"%d" % number, 0, (), 0.0)
    first, second, third = (queue.take(ME) for _ in range(3))
    queue.on_retry(first, 0.0)
    queue.on_retry(second, 0.0)
    assert not queue.is_ready(1.0, flushing=True), "the third is still under way"
    queue.on_acked(third)
    assert queue.take(ME) is first
    assert not queue.is_ready(1.0, flushing=True), "one at a time"
    queue.on_acked(first)
    assert queue.take(ME) is second
    assert not queue.is_ready(1.0, flushing=True), "the second was sent before, so it goes alone too"
    queue.on_acked(second)
    assert [queue.take(ME).base_sequence for _ in range(3)] == [3, 4, 5]
    assert len(queue.in_flight) == 3
