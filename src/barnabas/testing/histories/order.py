"""Machine: finds anomalies of order within one operation, and between an operation of a process and its next operation.

ASSIGN, SUBSCRIBE and SEEK reset the expected position of a consumer. Between two operations, a member of a group may
skip and repeat records, because a rebalance may have moved partitions in the meantime. A consumer with manually
assigned partitions may not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from barnabas.testing.histories.anomalies import Anomaly
from barnabas.testing.histories.facts import HistoryFacts
from barnabas.testing.histories.history import ClientOperation, Key, OperationKind
from barnabas.testing.histories.report import AnomalyFinding


def polls(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    positions: dict[str, dict[Key, tuple[int, ClientOperation]]] = {}
    subscribed: set[str] = set()
    for operation in _as_processes_did_them(facts):
        process = operation.process
        last = positions.setdefault(process, {})
        if operation.kind in (OperationKind.ASSIGN, OperationKind.SUBSCRIBE, OperationKind.SEEK):
            _move(operation, last, subscribed)
            continue
        within: dict[Key, int] = {}
        for poll in operation.polls:
            key, offset = poll.key, poll.offset
            if key in within:
                if not operation.rebalanced:
                    yield from _compare(
                        facts,
                        key,
                        within[key],
                        offset,
                        f"{operation}",
                        (Anomaly.INT_POLL_SKIP, Anomaly.INT_NONMONOTONIC_POLL),
                    )
            elif key in last:
                previous, earlier = last[key]
                kinds = (Anomaly.POLL_SKIP, Anomaly.NONMONOTONIC_POLL)
                if process in subscribed:
                    kinds = (Anomaly.SUBSCRIBED_POLL_SKIP, Anomaly.SUBSCRIBED_NONMONOTONIC_POLL)
                yield from _compare(facts, key, previous, offset, f"{earlier}, then {operation}", kinds)
            within[key] = offset
        for key, offset in within.items():
            last[key] = offset, operation


def _as_processes_did_them(facts: HistoryFacts) -> Iterable[ClientOperation]:
    return sorted(facts.history.operations, key=lambda operation: operation.invoked)


def _move(operation: ClientOperation, last: dict[Key, tuple[int, ClientOperation]], subscribed: set[str]) -> None:
    if operation.kind is OperationKind.SEEK:
        for key in operation.keys:
            last.pop(key, None)
        return
    last.clear()
    if operation.kind is OperationKind.SUBSCRIBE:
        subscribed.add(operation.process)
    else:
        subscribed.discard(operation.process)


def _compare(
    facts: HistoryFacts, key: Key, previous: int, offset: int, where: str, kinds: tuple[Anomaly, Anomaly]
) -> Iterator[AnomalyFinding]:
    skip, back = kinds
    if offset <= previous:
        yield AnomalyFinding(back, f"{key}: {previous}, then {offset}, by {where}")
        return
    # Only offsets that others polled count as skipped: control records, aborted and lost records leave holes, too.
    visible = facts.visible[key]
    passed = visible[bisect_right(visible, previous) : bisect_left(visible, offset)]
    if passed:
        yield AnomalyFinding(skip, f"{key}: {previous}, then {offset}, passing over {_few(passed)}, by {where}")


def sends(facts: HistoryFacts) -> Iterator[AnomalyFinding]:
    """A later send of a process to a key must have a higher offset than its earlier sends, where offsets are known."""
    last: dict[tuple[str, Key], tuple[int, ClientOperation]] = {}
    written = _acknowledged_offsets(facts)
    for operation in _as_processes_did_them(facts):
        within: dict[Key, int] = {}
        for send in operation.sends:
            if send.offset is None:
                continue
            key, offset = send.key, send.offset
            if key in within:
                if offset <= within[key]:
                    text = f"{key}: {within[key]}, then {offset}, by {operation}"
                    yield AnomalyFinding(Anomaly.INT_NONMONOTONIC_SEND, text)
                elif others := _between(written.get(key, []), within[key], offset):
                    text = f"{key}: {_few(others)} stand between {within[key]} and {offset} of {operation}"
                    yield AnomalyFinding(Anomaly.INT_SEND_SKIP, text)
            elif (operation.process, key) in last:
                previous, earlier = last[operation.process, key]
                if offset <= previous:
                    text = f"{key}: {previous}, then {offset}, by {earlier}, then {operation}"
                    yield AnomalyFinding(Anomaly.NONMONOTONIC_SEND, text)
            within[key] = offset
        for key, offset in within.items():
            last[operation.process, key] = offset, operation


def _acknowledged_offsets(facts: HistoryFacts) -> dict[Key, list[int]]:
    offsets: dict[Key, list[int]] = {}
    for operation in facts.history.operations:
        for send in operation.sends:
            if send.offset is not None:
                offsets.setdefault(send.key, []).append(send.offset)
    return {key: sorted(found) for key, found in offsets.items()}


def _between(offsets: list[int], low: int, high: int) -> list[int]:
    return offsets[bisect_right(offsets, low) : bisect_left(offsets, high)]


def _few(offsets: list[int]) -> str:
    shown = ", ".join(map(str, offsets[:5]))
    return shown if len(offsets) <= 5 else f"{shown} and {len(offsets) - 5} more"
