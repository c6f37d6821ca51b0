"""Idempotence and transactions in the log of one partition."""

from __future__ import annotations

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.records.validate import Origin
from barnabas.server.storage.values import AbortedTxn
from tests.configs import log_config
from tests.unit.server.storage.logs import LogHarness, batch

INT_MAX = (1 << 31) - 1


@pytest.fixture
def logs() -> LogHarness:
    return LogHarness()


def send(logs: LogHarness, sequence: int, *, pid: int = 1, epoch: int = 0, count: int = 1, txn: bool = False) -> int:
    data = batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=txn)
    return logs.append(data).first_offset


def refused(logs: LogHarness, code: ErrorCode, sequence: int, **kwargs: int | bool) -> None:
    end = logs.log.log_end_offset
    with pytest.raises(KafkaError) as e:
        send(logs, sequence, **kwargs)  # type: ignore[arg-type]
    assert e.value.code is code
    assert logs.log.log_end_offset == end


class TestSequences:
    def test_sequence_gap_is_rejected(self, logs: LogHarness) -> None:
        send(logs, 0, count=3)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)
        assert send(logs, 3) == 3

    def test_unknown_producer_may_start_anywhere(self, logs: LogHarness) -> None:
        send(logs, 500)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 502)

    def test_the_last_five_batches_are_known_as_duplicates(self, logs: LogHarness) -> None:
        for i in range(7):
            send(logs, i * 2, count=2)
        for i in range(2, 7):
            info = logs.append(batch(2, producer_id=1, producer_epoch=0, base_sequence=i * 2))
            assert (info.duplicate, info.first_offset, info.last_offset) == (True, i * 2, i * 2 + 1)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2, count=2)  # the sixth last is forgotten
        assert logs.log.log_end_offset == 14

    def test_a_batch_of_another_length_is_no_duplicate(self, logs: LogHarness) -> None:
        send(logs, 0, count=2)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, count=1)

    def test_sequences_wrap(self, logs: LogHarness) -> None:
        send(logs, INT_MAX - 1, count=4)  # ends at sequence 1
        assert logs.append(batch(4, producer_id=1, producer_epoch=0, base_sequence=INT_MAX - 1)).duplicate
        send(logs, 2)
        logs2 = LogHarness()
        send(logs2, INT_MAX)
        send(logs2, 0)

    def test_new_epoch_starts_at_zero(self, logs: LogHarness) -> None:
        send(logs, 0)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, epoch=1)
        send(logs, 0, epoch=1)
        refused(logs, ErrorCode.INVALID_PRODUCER_EPOCH, 1, epoch=0)

    def test_coordinators_send_no_sequences(self, logs: LogHarness) -> None:
        for _ in range(2):
            logs.append(batch(producer_id=1, producer_epoch=3), origin=Origin.COORDINATOR)
        with pytest.raises(KafkaError, match="has seen epoch 3"):
            logs.append(batch(producer_id=1, producer_epoch=2), origin=Origin.COORDINATOR)

    def test_followers_accept_what_the_leader_wrote(self, logs: LogHarness) -> None:
        first = batch(producer_id=1, producer_epoch=3, base_sequence=7, leader_epoch=0)
        gap = batch(base_offset=5, producer_id=1, producer_epoch=2, base_sequence=100, leader_epoch=0)
        info = logs.log.append_as_follower(first + gap, now_ms=0)
        assert info is not None
        assert (info.first_offset, info.last_offset) == (0, 5)

    def test_expiry(self) -> None:
        logs = LogHarness()
        send(logs, 0)
        logs.log.producers.expiration_ms = 5000
        assert logs.log.expire_producers(now_ms=5999) == 0
        assert logs.log.expire_producers(now_ms=6000) == 1
        send(logs, 77)


class TestRestart:
    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_state_survives(self, logs: LogHarness, how: str) -> None:
        send(logs, 0, count=5)
        send(logs, 5, count=2)
        getattr(logs, how)()
        assert logs.append(batch(2, producer_id=1, producer_epoch=0, base_sequence=5)).duplicate
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 8)
        assert send(logs, 7) == 7

    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_survives_over_many_segments(self, how: str) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=300))
        for i in range(20):
            send(logs, i)
            if i < 3:
                send(logs, 0, pid=10 + i)
        entries = {e.producer_id: (e.epoch, e.last_sequence) for e in logs.log.producers.entries}
        getattr(logs, how)()
        assert {e.producer_id: (e.epoch, e.last_sequence) for e in logs.log.producers.entries} == entries

    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_a_retry_of_all_in_flight_is_known_after_a_start(self, how: str) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=300))
        for i in range(20):
            send(logs, i)
        getattr(logs, how)()
        assert [send(logs, i) for i in range(15, 20)] == [15, 16, 17, 18, 19]
        assert logs.log.log_end_offset == 20

    def test_corrupt_snapshot_causes_a_longer_replay(self) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=300))
        for i in range(20):
            send(logs, i)
        snapshots = [n for n in logs.disk.listdir(logs.path) if n.endswith(".snapshot")]
        assert len(snapshots) > 3
        for name in snapshots[-2:]:
            logs.disk.data(f"{logs.path}/{name}")[7] ^= 1  # type: ignore[attr-defined]
        logs.kill()
        assert send(logs, 20) == 20

    def test_truncation_restores_the_producer_state(self, logs: LogHarness) -> None:
        for i in range(10):
            send(logs, i)
        logs.log.truncate_to(4)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 10)
        assert send(logs, 4) == 4


class TestTransactions:
    def test_last_stable_offset(self, logs: LogHarness) -> None:
        log = logs.log
        send(logs, 0, pid=9)
        send(logs, 0, pid=1, txn=True)  # at 1
        send(logs, 0, pid=2, txn=True)  # at 2
        assert log.last_stable_offset(3) == 1
        assert [e.producer_id for e in log.producers.open_transactions] == [1, 2]
        logs.marker(1, 0, commit=True)  # at 3
        assert [e.producer_id for e in log.producers.open_transactions] == [2]
        assert log.last_stable_offset(3) == 1  # the marker is not committed yet
        assert log.last_stable_offset(4) == 2
        logs.marker(2, 0, commit=False)  # at 4
        assert log.last_stable_offset(5) == 5

    def test_aborted_transactions(self, logs: LogHarness) -> None:
        send(logs, 0, pid=1, txn=True)
        send(logs, 0, pid=2, txn=True)
        logs.marker(1, 0, commit=False)
        send(logs, 1, pid=2, txn=True)
        logs.marker(2, 0, commit=False)
        first, second = AbortedTxn(1, 0, 2, 1), AbortedTxn(2, 1, 4, 5)
        assert logs.log.aborted_transactions(0, 5) == [first, second]
        assert logs.log.aborted_transactions(0, 1) == [first]
        assert logs.log.aborted_transactions(3, 5) == [second]

    @pytest.mark.parametrize("how", ["restart", "kill"])
    def test_survive_a_restart(self, how: str) -> None:
        logs = LogHarness(config=log_config(internal_segment_bytes=300))
        send(logs, 0, pid=1, txn=True)
        logs.marker(1, 0, commit=False)
        send(logs, 0, pid=2, txn=True)
        for i in range(12):
            send(logs, i, pid=3)
        getattr(logs, how)()
        assert logs.log.aborted_transactions(0, 100) == [AbortedTxn(1, 0, 1, 2)]
        assert logs.log.last_stable_offset(logs.log.log_end_offset) == 2
        logs.marker(2, 0, commit=True)
        assert logs.log.last_stable_offset(logs.log.log_end_offset) == logs.log.log_end_offset

    def test_plain_write_in_a_transaction(self, logs: LogHarness) -> None:
        send(logs, 0, txn=True)
        refused(logs, ErrorCode.INVALID_TXN_STATE, 1)
        send(logs, 1, txn=True)

    def test_marker_of_an_old_coordinator_epoch_is_rejected(self, logs: LogHarness) -> None:
        send(logs, 0, txn=True)
        logs.marker(1, 0, commit=True, coordinator_epoch=5)
        with pytest.raises(KafkaError) as e:
            logs.marker(1, 0, commit=True, coordinator_epoch=4)
        assert e.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_marker_of_an_old_epoch(self, logs: LogHarness) -> None:
        send(logs, 0, epoch=3, txn=True)
        with pytest.raises(KafkaError) as e:
            logs.marker(1, 2, commit=True)
        assert e.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_fencing_marker_raises_the_epoch_and_restarts_sequences(self, logs: LogHarness) -> None:
        send(logs, 0, txn=True)
        logs.marker(1, 1, commit=False)
        refused(logs, ErrorCode.INVALID_PRODUCER_EPOCH, 1, epoch=0, txn=True)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, epoch=1, txn=True)
        send(logs, 0, epoch=1, txn=True)

    def test_sequences_go_on_after_a_commit(self, logs: LogHarness) -> None:
        send(logs, 0, txn=True)
        logs.marker(1, 0, commit=True)
        refused(logs, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, count=2, txn=True)
        send(logs, 1, txn=True)

    def test_marker_without_a_transaction_is_not_unstable(self, logs: LogHarness) -> None:
        logs.marker(1, 0, commit=False)
        assert logs.log.last_stable_offset(1) == 1
        assert logs.log.aborted_transactions(0, 1) == []

    def test_open_transactions_do_not_expire(self, logs: LogHarness) -> None:
        send(logs, 0, txn=True)
        assert logs.log.expire_producers(now_ms=10**15) == 0

    def test_truncation_removes_the_aborted_transaction(self, logs: LogHarness) -> None:
        send(logs, 0, txn=True)
        logs.marker(1, 0, commit=False)
        logs.log.truncate_to(1)
        assert logs.log.aborted_transactions(0, 9) == []
        assert logs.log.last_stable_offset(1) == 0
