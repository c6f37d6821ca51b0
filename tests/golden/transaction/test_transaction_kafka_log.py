"""A `__transaction_state` that Apache Kafka 4.3.1 wrote: its Java client's transactions (protocol 2: commits, aborts, a
fenced zombie), librdkafka's (protocol 1), and one that was open when the broker was killed."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from barnabas.core.ids import TopicPartition
from barnabas.protocol.records.batch import iter_batches, iter_records
from barnabas.server.coordination.ports import LogRecord
from barnabas.server.coordination.timeline import Timeline
from barnabas.server.coordination.transaction import transitions
from barnabas.server.coordination.transaction.ports import MarkerJob
from barnabas.server.coordination.transaction.records import FORMAT
from barnabas.server.coordination.transaction.shard import TransactionShard
from barnabas.server.coordination.transaction.state import FOLLOWS, TransactionMetadata, TxnState, from_record
from tests.configs import transaction_config

LOG = (Path(__file__).parent / "kafka_4_3_1_transaction_state.log").read_bytes()
RECORDS = [
    LogRecord(record.key or b"", record.value)
    for position, header in iter_batches(LOG)
    for record in iter_records(LOG, position, header)
]


class NoMarkers:
    def put(self, job: MarkerJob) -> None:
        raise AssertionError("nothing was decided")

    def drop(self, home: int) -> None: ...


def test_reencoding_a_record_of_kafka_gives_the_same_bytes() -> None:
    assert len(RECORDS) > 30
    for record in RECORDS:
        decoded = FORMAT.decode(record)
        assert decoded is not None
        assert FORMAT.encode(decoded) == record


def test_transitions_in_kafkas_log_are_permitted() -> None:
    last: dict[str, TransactionMetadata] = {}
    for record in RECORDS:
        decoded = FORMAT.decode(record)
        assert decoded is not None
        name, now = decoded.key.transactional_id, from_record(decoded.value)
        before = last.get(name)
        if before is not None:
            assert before.state in FOLLOWS[now.state]
            assert now.epoch >= before.epoch
            if now.state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
                assert transitions.complete(before, now.updated_ms) == now
            if now.state is TxnState.PREPARE_ABORT and now.client_version == 2:
                assert now in (_aborted(before, now.updated_ms), transitions.fence(before, now.updated_ms))
        last[name] = now


def _aborted(txn: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """End the transaction as its producer would. Kafka's records do not have the last epoch."""
    ended = transitions.end(txn, txn.producer_id, txn.epoch, commit=False, version=2, fresh_id=-1, now_ms=now_ms)
    return replace(ended, last_epoch=-1)


def test_coordinator_continues_from_kafkas_log() -> None:
    shard = TransactionShard(0, transaction_config(), Timeline(), NoMarkers(), lambda: 2)
    for offset, record in enumerate(RECORDS):
        decoded = shard.log_format.decode(record)
        assert decoded is not None
        shard.apply(decoded, offset, -1)
    found = {name: (txn.state, txn.epoch, txn.partitions) for name, txn in shard.transactions.items()}
    assert found == {
        "java-a": (TxnState.EMPTY, 11, frozenset()),
        "rdkafka-done": (TxnState.COMPLETE_ABORT, 0, frozenset()),
        "rdkafka-open": (
            TxnState.ONGOING,
            0,
            frozenset({TopicPartition("plain", 0), TopicPartition("other", 0)}),
        ),
    }
