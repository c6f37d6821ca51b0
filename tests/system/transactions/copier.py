"""A read-process-write application on librdkafka, made to be killed: copies a topic exactly once.

    python -m tests.system.transactions.copier BOOTSTRAP INPUT OUTPUT GROUP RECORDS_PER_TRANSACTION

Offsets travel in the transaction with the member's generation (KIP-447). The program runs until it is killed, or until
an error that a producer does not survive; the test then starts it again. The next process aborts the open transaction
of the previous one, and reads its records again.

librdkafka 2.10 and later can hang in `send_offsets_to_transaction` for ever (its issues 5511 and 5456): a broker that
is fenced is missing from the next Metadata response, librdkafka then destroys its handle of that broker, but the cache
of group coordinators keeps the handle; TxnOffsetCommit waits for a connection that is never opened, and the call's own
time-out is not checked. Later Metadata and FindCoordinator responses do not help. So a watchdog ends the process when
that call takes longer than the transaction can last, and when no transaction has ended for `PATIENCE_S`.

A coordinator that is killed between the JoinGroup response and the SyncGroup request has not stored the member id of
that response. Its successor answers FENCED_INSTANCE_ID to that static member, and librdkafka's consumer never returns a
record again. So a fatal error of the consumer ends the program, too. `COPIER_DEBUG` is librdkafka's `debug` setting.
"""

from __future__ import annotations

import faulthandler
import os
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

CALL_S = 20.0
TRANSACTION_S = 10.0
"""transaction.timeout.ms: after this time the coordinator aborts the transaction, and offsets cannot be added."""
WATCHDOG_S = TRANSACTION_S + 5.0
PATIENCE_S = 45.0
"""Longer than the test's cluster is ever without a leader or a coordinator."""
SETTINGS = {
    # When its only broker is away, librdkafka 2.11 and later bootstrap anew, and may then wait for ever for a
    # coordinator that they looked up before.
    "metadata.recovery.strategy": "none",
    **({"debug": os.environ["COPIER_DEBUG"]} if "COPIER_DEBUG" in os.environ else {}),
}


def main(bootstrap: str, source: str, target: str, group: str, per_transaction: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": f"{group}-1",  # who comes back after a kill need not wait for its own ghost
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "reconnect.backoff.max.ms": 500,
            **SETTINGS,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"copier-{group}",
            "transaction.timeout.ms": round(TRANSACTION_S * 1000),
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 500,
            **SETTINGS,
        }
    )
    producer.init_transactions(CALL_S)
    consumer.subscribe([source])
    while True:
        faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
        batch: list[Message] = []
        while len(batch) < per_transaction:
            polled = consumer.consume(per_transaction - len(batch), timeout=0.2)
            for message in polled:
                error = message.error()
                if error is None:
                    batch.append(message)
                elif error.fatal():
                    raise KafkaException(error)
            if batch and not polled:
                break
        copy(producer, consumer, batch, target)


def copy(producer: Producer, consumer: Consumer, batch: list[Message], target: str) -> None:
    """One transaction. An error that aborting mends is mended; others end the program."""
    producer.begin_transaction()
    try:
        positions: dict[tuple[str, int], int] = {}
        for message in batch:
            producer.produce(target, message.value(), message.key(), partition=message.partition())
            positions[message.topic(), message.partition()] = message.offset() + 1
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        _send_offsets(producer, consumer, offsets)
        _persist(lambda: producer.commit_transaction(CALL_S))
    except KafkaException as failed:
        error: KafkaError = failed.args[0]
        print("aborting:", error, file=sys.stderr, flush=True)
        if not error.txn_requires_abort():
            raise
        _persist(lambda: producer.abort_transaction(CALL_S))
        _rewind(consumer)


def _send_offsets(producer: Producer, consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Ends the process if the call hangs (see the top of this file)."""

    def send() -> None:
        faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
        try:
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TRANSACTION_S)
        finally:
            faulthandler.dump_traceback_later(PATIENCE_S, exit=True)

    _persist(send)


def _persist(call: object) -> None:
    """Repeats a call until its outcome is known. A time-out does not say whether the call took effect."""
    while True:
        try:
            call()  # type: ignore[operator]
            return
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise


def _rewind(consumer: Consumer) -> None:
    for position in consumer.committed(consumer.assignment(), timeout=CALL_S):
        offset = position.offset if position.offset >= 0 else 0
        consumer.seek(TopicPartition(position.topic, position.partition, offset))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    except KafkaException as fatal:
        print("giving up:", fatal, file=sys.stderr, flush=True)
        os._exit(1)  # a producer with an open transaction takes its time to close
