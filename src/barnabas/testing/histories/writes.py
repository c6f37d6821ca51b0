"""Machine: finds anomalies of single writes: failed but seen, acknowledged but not seen, or seen at two offsets."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.facts import HistoryFacts
from barnabas.testing.histories.history import OperationKind, OperationOutcome, SendAction, Value
from barnabas.testing.histories.report import AnomalyFinding


def inconsistent_offsets(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    """Polls and acknowledgements must agree on the value at each offset."""
    by_offset: dict[tuple[str, int], set[Value]] = {}
    for (key, value), offsets in facts.offsets.items():
        for offset in offsets:
            by_offset.setdefault((key, offset), set()).add(value)
    for (key, offset), values in sorted(by_offset.items(), key=lambda item: item[0]):
        if len(values) > 1:
            shown = sorted(values, key=str)
            yield AnomalyFinding(Anomaly.INCONSISTENT_OFFSETS, f"{key} at offset {offset} has shown {shown}")


def duplicates(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    """A value must be at one offset of one partition only."""
    places: dict[Value, set[tuple[str, int]]] = {}
    for (key, value), offsets in facts.offsets.items():
        places.setdefault(value, set()).update((key, offset) for offset in offsets)
    for value, where in places.items():
        if len(where) > 1:
            text = ", ".join(f"{key} at {offset}" for key, offset in sorted(where))
            yield AnomalyFinding(Anomaly.DUPLICATE, f"{value!r} is in {text}")


def phantoms(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    for key, by_offset in facts.seen.items():
        for offset, values in sorted(by_offset.items()):
            for value in values:
                if value not in facts.writes:
                    yield AnomalyFinding(Anomaly.PHANTOM, f"{value!r} was polled from {key} at {offset}")


def aborted_reads(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    """No poll may return a value of an operation that failed or was aborted (G1a, aborted read). A finding names the
    reader, because usually only one reader at one moment saw the value."""
    for operation in facts.history.operations:
        for poll in operation.polls:
            write = facts.writes.get(poll.value)
            if write is not None and write.operation.outcome is OperationOutcome.FAIL:
                text = f"{poll.value!r} of {write.operation} was polled by {operation} from {poll.key} at {poll.offset}"
                yield AnomalyFinding(Anomaly.ABORTED_READ, text)


def precommitted_reads(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    for operation in facts.history.operations:
        if operation.kind is OperationKind.TRANSACTION:
            own = {send.value for send in operation.sends}
            for poll in operation.polls:
                if poll.value in own:
                    yield AnomalyFinding(
                        Anomaly.PRECOMMITTED_READ, f"{operation} polled its own {poll.value!r} of {poll.key}"
                    )


def missing_writes(facts: HistoryFacts, *, healed: bool) -> Iterator[AnomalyFinding]:
    """Finds writes that happened and were never polled. Such a write is lost if a later offset was polled; otherwise it
    is unseen, which is an anomaly only if the run was `healed`.

    If a transaction has no acknowledgement, and only the polled records prove that it was committed, the offsets of its
    other writes are unknown. Such a write can only be unseen.
    """
    for value, write in facts.writes.items():
        if value in facts.seen_values or not facts.stands(write):
            continue
        send = write.send
        behind = facts.visible.get(send.key, [])
        if send.offset is not None and behind and behind[-1] > send.offset:
            text = f"{value!r} of {write.operation} in {send.key} at {send.offset}; {behind[-1]} was polled"
            yield AnomalyFinding(Anomaly.LOST_WRITE, text)
        elif healed:
            yield AnomalyFinding(Anomaly.UNSEEN, f"{value!r} of {write.operation} in {send.key}, {_place(send)}")


def _place(send: SendAction) -> str:
    return "at an unknown offset" if send.offset is None else f"at {send.offset}"
