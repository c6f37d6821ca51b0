"""Shell: a broker with a planted bug. Each entry of BUGS breaks the production code in one way, in a separate process.

    python -m tests.system.anomalies.planted NAME serve --data-dir ...

A bug that the checker does not find here, it would not find in a real broker either. `shows` has the anomalies that a
bug may cause; there may be several, since the visible anomaly depends on the client that is affected.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import NO_PRODUCER_ID
from barnabas.protocol.records.batch import iter_batches
from barnabas.protocol.records.validate import Origin
from barnabas.server.broker.handlers.transactions import write_txn_markers
from barnabas.server.broker.verification import TransactionVerifier
from barnabas.server.coordination.group.offset_store import CommittedOffsets
from barnabas.server.coordination.transaction import transitions
from barnabas.server.coordination.transaction.state import PREPARED
from barnabas.server.replication.partition import Partition
from barnabas.server.storage import recovery
from barnabas.server.storage.log import Log
from barnabas.server.storage.producers.state import ProducerState
from barnabas.server.storage.values import AppendInfo
from barnabas.testing.histories import Anomaly

TEST_TOPIC = "log"


@dataclass(frozen=True)
class Bug:
    """A planted bug. `plant` patches the running process. `faults` are the faults that make the bug visible."""

    plant: Callable[[], None]
    shows: frozenset[Anomaly]
    faults: tuple[str, ...]


BUGS: dict[str, Bug] = {}


def bug(*shows: Anomaly, faults: tuple[str, ...] = ()) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(plant: Callable[[], None]) -> Callable[[], None]:
        BUGS[plant.__name__.replace("_", "-")] = Bug(plant, frozenset(shows), faults)
        return plant

    return register


def swap(owner: Any, name: str, wrong: Any) -> None:
    """Replaces an existing attribute."""
    getattr(owner, name)
    setattr(owner, name, wrong)


# --- Fetch responses ---------------------------------------------------------------------------------------------

GIVEN_TOO_MUCH = (Anomaly.ABORTED_READ, Anomaly.PRECOMMITTED_READ, Anomaly.INFORMATION_CYCLE)


@bug(*GIVEN_TOO_MUCH)
def last_stable_offset_off_by_one() -> None:
    right = Log.last_stable_offset
    swap(Log, "last_stable_offset", lambda log, watermark: min(right(log, watermark) + 1, watermark))


@bug(*GIVEN_TOO_MUCH)
def committed_before_the_marker() -> None:
    swap(Log, "last_stable_offset", lambda log, watermark: watermark)


@bug(*GIVEN_TOO_MUCH)
def aborted_transactions_not_listed() -> None:
    swap(Log, "aborted_transactions", lambda log, start, end: [])


# --- producer checks ---------------------------------------------------------------------------------------------


@bug(Anomaly.DUPLICATE, Anomaly.NONMONOTONIC_SEND, Anomaly.INT_NONMONOTONIC_SEND, faults=("stop",))
def duplicate_window_ignored() -> None:
    swap(ProducerState, "duplicate_of", lambda state, header: None)
    swap(ProducerState, "_check_sequence", lambda state, entry, header: None)


@bug(*GIVEN_TOO_MUCH, Anomaly.DUPLICATE, Anomaly.LOST_WRITE, Anomaly.UNSEEN, faults=("kill",))
def producers_forgotten_at_restart() -> None:
    right = recovery._LogLoader._load_producers

    def forgetful(loader: Any, start: int, end: int) -> None:
        right(loader, start, end)
        loader._producers.reset(end)

    swap(recovery._LogLoader, "_load_producers", forgetful)


@bug(Anomaly.LOST_WRITE, Anomaly.UNSEEN, Anomaly.ABORTED_READ)
def zombies_not_fenced() -> None:
    right = transitions.end

    def trusting(txn: Any, producer_id: int, epoch: int, **rest: Any) -> Any:
        return right(txn, *(txn.identity if txn is not None else (producer_id, epoch)), **rest)

    def welcome(txn: Any, producer_id: int, epoch: int, grid: Any = None) -> Any:
        if txn is not None and txn.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return txn

    needs_verification = TransactionVerifier._needs_verification

    def polite(self: TransactionVerifier, write: Any, supported: Any, *, enabled: bool) -> bool:
        try:
            return needs_verification(self, write, supported, enabled=enabled)
        except KafkaError:
            return True

    swap(transitions, "end", trusting)
    swap(transitions, "check_producer", welcome)
    swap(TransactionVerifier, "_needs_verification", polite)
    swap(ProducerState, "_check_epoch", lambda state, entry, header, origin: None)


# --- markers -----------------------------------------------------------------------------------------------------


@bug(*GIVEN_TOO_MUCH, Anomaly.LOST_WRITE, Anomaly.UNSEEN)
def every_fifth_marker_lost() -> None:
    right, numbers = write_txn_markers._append, itertools.count(1)

    def forgetful(partition: Partition, marker: Any, now_ms: int) -> int:
        return 0 if next(numbers) % 5 == 0 else right(partition, marker, now_ms)

    swap(write_txn_markers, "_append", forgetful)


@bug(Anomaly.LOST_WRITE, Anomaly.UNSEEN, Anomaly.ABORTED_READ, Anomaly.PROCESSED_TWICE)
def every_fifth_marker_turned_round() -> None:
    right, numbers = write_txn_markers._append, itertools.count(1)

    def muddled(partition: Partition, marker: Any, now_ms: int) -> int:
        if next(numbers) % 5 == 0:
            marker = copy.copy(marker)
            marker.transaction_result = not marker.transaction_result
        return right(partition, marker, now_ms)

    swap(write_txn_markers, "_append", muddled)


@bug(Anomaly.NOT_PROCESSED)
def offsets_committed_before_the_marker() -> None:
    right = CommittedOffsets.apply

    def hasty(store: CommittedOffsets, key: Any, value: Any, log_offset: int, producer_id: int) -> None:
        right(store, key, value, log_offset, NO_PRODUCER_ID)

    swap(CommittedOffsets, "apply", hasty)


# --- acknowledgements --------------------------------------------------------------------------------------------

NOT_KEPT = (Anomaly.LOST_WRITE, Anomaly.UNSEEN, Anomaly.INCONSISTENT_OFFSETS, Anomaly.DUPLICATE)


@bug(*NOT_KEPT, faults=("kill",))
def acknowledged_before_the_append() -> None:
    right = Partition.append
    late: dict[Partition, list[tuple[bytes, int, int]]] = {}

    def catch_up(partition: Partition) -> None:
        for records, acks, now_ms in late.pop(partition, []):
            try:
                right(partition, records, acks, now_ms)
            except KafkaError:
                continue

    def hasty(
        partition: Partition, records: Any, acks: int, now_ms: int, origin: Origin = Origin.CLIENT, **rest: Any
    ) -> AppendInfo:
        if origin is not Origin.CLIENT or partition.name.topic != TEST_TOPIC:
            catch_up(partition)
            return right(partition, records, acks, now_ms, origin, **rest)
        queue = late.setdefault(partition, [])
        if not queue:
            asyncio.get_running_loop().call_later(0.2, catch_up, partition)
        assert partition.log is not None
        first = partition.log.log_end_offset + sum(_count(waiting) for waiting, _, _ in queue)
        queue.append((bytes(records), acks, now_ms))
        return AppendInfo(first, first + _count(records) - 1, -1, partition.log.log_start_offset)

    swap(Partition, "append", hasty)
    swap(Partition, "try_committed", lambda partition, offset: ErrorCode.NONE)


def _count(records: Any) -> int:
    return sum(header.last_offset_delta + 1 for _, header in iter_batches(memoryview(records)))


@bug(*NOT_KEPT, Anomaly.NONMONOTONIC_POLL, faults=("kill",))
def recovery_drops_the_last_batch() -> None:
    right = recovery.scan_batches

    def short(segment: Any) -> Iterator[Any]:
        batches = right(segment)
        if f"/{TEST_TOPIC}-" not in segment.directory:
            yield from batches
            return
        held = None
        for batch in batches:
            if held is not None:
                yield held
            held = batch

    swap(recovery, "scan_batches", short)


if __name__ == "__main__":
    BUGS[sys.argv[1]].plant()
    from barnabas.cli.app import main

    sys.argv = ["barnabas", *sys.argv[2:]]
    main()
