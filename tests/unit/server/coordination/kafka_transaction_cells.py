"""Table: the answers of Apache Kafka 4.3.1's transaction coordinator, and how a test provokes each of them.

Read from the classes `kafka.coordinator.transaction.TransactionCoordinator` and
`org.apache.kafka.coordinator.transaction.TransactionMetadata` of that version. Each grid names the method that decides.
A cell is a name of `OUTCOMES`.

A transactional id whose markers are being written always has a pending state in Kafka: `prepareComplete` sets the
pending state CompleteCommit or CompleteAbort before the markers are sent, and after a load of the log. So the rows
Prepare... show what Kafka answers while a pending state is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.core.errors import ErrorCode

NONE: Final = ErrorCode.NONE
CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS


class Outcome(NamedTuple):
    """The error code, the state afterwards (empty: unchanged), and by how much the epoch has grown."""

    code: ErrorCode
    state: str = ""
    bump: int = 0


OUTCOMES: Final = {
    "concurrent": Outcome(CONCURRENT),
    "fenced": Outcome(ErrorCode.PRODUCER_FENCED),
    "mapping": Outcome(ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    "invalid": Outcome(ErrorCode.INVALID_TXN_STATE),
    "abortable": Outcome(ErrorCode.TRANSACTION_ABORTABLE),
    "ok": Outcome(NONE),
    "first": Outcome(NONE, "Empty", 0),
    "next": Outcome(NONE, "Empty", 1),
    "again": Outcome(NONE, "Empty", 0),
    "aborts": Outcome(CONCURRENT, "PrepareAbort", 1),
    "adds": Outcome(NONE, "Ongoing", 0),
    "commit": Outcome(NONE, "PrepareCommit", 0),
    "abort": Outcome(NONE, "PrepareAbort", 0),
    "commit+1": Outcome(NONE, "PrepareCommit", 1),
    "abort+1": Outcome(NONE, "PrepareAbort", 1),
}


class TxnRequest(Enum):
    """The requests of the table. V1 and V2 are the transaction version of an EndTxn."""

    INIT = "InitProducerId"
    RECOVER = "InitProducerId with an id"
    ADD = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    VERIFY = "AddPartitionsToTxn VerifyOnly"
    COMMIT_V1 = "EndTxn v4 commit"
    ABORT_V1 = "EndTxn v4 abort"
    COMMIT_V2 = "EndTxn v5 commit"
    ABORT_V2 = "EndTxn v5 abort"


_INIT: Final = """
                     new
    none             first
    Empty            next
    Ongoing          aborts
    PrepareCommit    concurrent
    PrepareAbort     concurrent
    CompleteCommit   next
    CompleteAbort    next
"""
"""TransactionCoordinator.prepareInitProducerIdTransit without an expected producer;
TransactionMetadata.prepareIncrementProducerEpoch."""

_RECOVER: Final = """
                     other       older       last        current     newer
    none             first       first       first       first       first
    Empty            fenced      fenced      again       next        fenced
    Ongoing          fenced      aborts      aborts      aborts      aborts
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   fenced      fenced      again       next        fenced
    CompleteAbort    fenced      fenced      again       next        fenced
"""
"""TransactionCoordinator.prepareInitProducerIdTransit: pendingTransitionInProgress, then isValidProducerId, then the
state. In state Ongoing the epoch is not compared (prepareFenceProducerEpoch). The epochs of the other states are those
of TransactionMetadata.prepareIncrementProducerEpoch, where `last` is lastProducerEpoch."""

_ADD: Final = """
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      adds        fenced
    Ongoing          mapping     fenced      fenced      adds        fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   mapping     fenced      fenced      adds        fenced
    CompleteAbort    mapping     fenced      fenced      adds        fenced
"""
"""TransactionCoordinator.handleAddPartitionsToTransaction: pendingTransitionInProgress is its first check. KafkaApis
calls it for AddPartitionsToTxn without VerifyOnly and for AddOffsetsToTxn."""

_VERIFY: Final = """
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      abortable   fenced
    Ongoing          mapping     fenced      fenced      ok          fenced
    PrepareCommit    mapping     fenced      fenced      concurrent  fenced
    PrepareAbort     mapping     fenced      fenced      concurrent  fenced
    CompleteCommit   mapping     fenced      fenced      abortable   fenced
    CompleteAbort    mapping     fenced      fenced      abortable   fenced
"""
"""TransactionCoordinator.handleVerifyPartitionsInTransaction, which does not look at the pending state."""

_COMMIT_V1: Final = """
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      invalid     fenced
    Ongoing          mapping     fenced      fenced      commit      fenced
    PrepareCommit    mapping     fenced      fenced      concurrent  fenced
    PrepareAbort     mapping     fenced      fenced      concurrent  fenced
    CompleteCommit   mapping     fenced      fenced      ok          fenced
    CompleteAbort    mapping     fenced      fenced      invalid     fenced
"""
"""TransactionCoordinator.endTransactionWithTV1: producer id, epoch, pending state, state."""

_ABORT_V1: Final = """
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      invalid     fenced
    Ongoing          mapping     fenced      fenced      abort       fenced
    PrepareCommit    mapping     fenced      fenced      concurrent  fenced
    PrepareAbort     mapping     fenced      fenced      concurrent  fenced
    CompleteCommit   mapping     fenced      fenced      invalid     fenced
    CompleteAbort    mapping     fenced      fenced      ok          fenced
"""
"""TransactionCoordinator.endTransactionWithTV1."""

_COMMIT_V2: Final = """
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      invalid     fenced
    Ongoing          mapping     fenced      fenced      commit+1    fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   mapping     fenced      ok          invalid     fenced
    CompleteAbort    mapping     fenced      invalid     invalid     fenced
"""
"""TransactionCoordinator.endTransaction: pending state, producer id, isValidEpoch, state. A retry is
retryOnEpochBump or retryOnOverflow."""

_ABORT_V2: Final = """
                     other       older       last        current     newer
    none             mapping     mapping     mapping     mapping     mapping
    Empty            mapping     fenced      fenced      abort+1     fenced
    Ongoing          mapping     fenced      fenced      abort+1     fenced
    PrepareCommit    concurrent  concurrent  concurrent  concurrent  concurrent
    PrepareAbort     concurrent  concurrent  concurrent  concurrent  concurrent
    CompleteCommit   mapping     fenced      invalid     abort+1     fenced
    CompleteAbort    mapping     fenced      ok          abort+1     fenced
"""
"""TransactionCoordinator.endTransaction; generateTxnTransitMetadataForTxnCompletion with noPartitionAdded for an abort
without an open transaction."""

_GRIDS: Final = {
    TxnRequest.INIT: _INIT,
    TxnRequest.RECOVER: _RECOVER,
    TxnRequest.ADD: _ADD,
    TxnRequest.ADD_OFFSETS: _ADD,
    TxnRequest.VERIFY: _VERIFY,
    TxnRequest.COMMIT_V1: _COMMIT_V1,
    TxnRequest.ABORT_V1: _ABORT_V1,
    TxnRequest.COMMIT_V2: _COMMIT_V2,
    TxnRequest.ABORT_V2: _ABORT_V2,
}


class Cell(NamedTuple):
    request: TxnRequest
    state: str
    age: str

    def __str__(self) -> str:
        return f"{self.request.value}, {self.state}, {self.age}"


def _cells() -> Iterator[tuple[Cell, Outcome]]:
    for request, text in _GRIDS.items():
        header, *rows = (line.split() for line in text.strip().splitlines())
        for state, *names in rows:
            for age, name in zip(header, names, strict=True):
                yield Cell(request, state, age), OUTCOMES[name]


KAFKA: Final = dict(_cells())
"""Every cell of Apache Kafka 4.3.1."""

DELIBERATE: Final = {
    Cell(TxnRequest.RECOVER, "Ongoing", age): (
        OUTCOMES["fenced"],
        "A producer that has been fenced must not abort the transaction of its successor.",
    )
    for age in ("older", "last", "newer")
}
"""The cells in which our coordinator differs on purpose, with its answer and the reason."""


# -- how each cell is provoked


class Producer(NamedTuple):
    producer_id: int
    epoch: int


class Coordinator(Protocol):
    """One transactional id at a coordinator. A test implements it for a machine in memory or for a real broker."""

    def init(self, producer: Producer | None) -> tuple[ErrorCode, Producer]: ...

    def add(self, producer: Producer) -> ErrorCode: ...

    def add_offsets(self, producer: Producer) -> ErrorCode: ...

    def verify(self, producer: Producer) -> ErrorCode: ...

    def end(self, producer: Producer, *, commit: bool, version: int) -> tuple[ErrorCode, Producer]:
        """The second value is the producer's next identity."""
        ...

    def write_markers(self) -> None:
        """Returns when the markers are written."""
        ...

    def state(self) -> tuple[str, Producer]:
        """The state (`none` if the id is unknown) and the current identity."""
        ...


def reach(coordinator: Coordinator, state: str, version: int) -> Producer:
    """Bring a new transactional id into the state. The current identity of its producer; the two epochs before it were
    in use, and the last one is recorded as such."""
    if state == "none":
        return Producer(1_000_000, 3)
    for _ in range(3):
        _, producer = coordinator.init(None)
    code, producer = coordinator.init(producer)
    assert code is NONE
    if state == "Empty":
        return producer
    assert coordinator.add(producer) is NONE
    if state == "Ongoing":
        return producer
    code, producer = coordinator.end(producer, commit=state.endswith("Commit"), version=version)
    assert code is NONE
    if state.startswith("Complete"):
        coordinator.write_markers()
    return producer


def aged(current: Producer, age: str) -> Producer | None:
    """The identity in a request of this age."""
    match age:
        case "new":
            return None
        case "other":
            return Producer(current.producer_id + 1_000_000, current.epoch)
    return Producer(current.producer_id, current.epoch + {"older": -2, "last": -1, "current": 0, "newer": 1}[age])


def ask(coordinator: Coordinator, request: TxnRequest, producer: Producer | None) -> ErrorCode:
    """Send the request of a cell."""
    match request:
        case TxnRequest.INIT | TxnRequest.RECOVER:
            return coordinator.init(producer)[0]
    assert producer is not None
    match request:
        case TxnRequest.ADD:
            return coordinator.add(producer)
        case TxnRequest.ADD_OFFSETS:
            return coordinator.add_offsets(producer)
        case TxnRequest.VERIFY:
            return coordinator.verify(producer)
    commit = request in (TxnRequest.COMMIT_V1, TxnRequest.COMMIT_V2)
    version = 1 if request in (TxnRequest.COMMIT_V1, TxnRequest.ABORT_V1) else 2
    return coordinator.end(producer, commit=commit, version=version)[0]
