"""Machine: numbers the events of transactions, and gives every row a place in the binlog as text.

A place is `0000000042.000000001234.00000007.00000001`: the number of the file, the position behind the transaction,
the number of the rows event in the transaction, and that of the row in the event. Places are ordered as text. After a
failover, files are numbered anew, so that a place begins with the number of failovers: `e0001.0000000003....`
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from barnabas.protocol.records.columnar._jit import np, pa
from barnabas.spark.connectors.capture.planning import era

_FILE_DIGITS: Final = 10
_POSITION_DIGITS: Final = 14
_NUMBER_DIGITS: Final = 9


class EventOrders(Struct, frozen=True):
    """For each row, the number of its event in its transaction, and in its transaction and table, from 1.

    `counts` has for each transaction the numbers of events by table.
    """

    total: Any
    in_table: Any
    counts: tuple[tuple[tuple[str, int], ...], ...]


def number_events(weights: Any, tables: Any, owners: Any, transactions: int, names: tuple[str, ...]) -> EventOrders:
    """Number the events of rows in the order of the binlog. A row has as many events as its weight, 1 or 2.

    `tables` are indexes in `names`, and `owners` numbers of transactions, which ascend and are each there.
    """
    before = np.cumsum(weights) - weights
    total = before - before[np.searchsorted(owners, owners)] + 1
    keys = owners * len(names) + tables
    sorting = np.argsort(keys, kind="stable")
    sorted_keys, sorted_weights = keys[sorting], weights[sorting]
    sums = np.cumsum(sorted_weights) - sorted_weights
    begins = (
        np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    )
    sizes = np.diff(np.append(begins, len(keys)))
    in_table = np.empty(len(keys), np.int64)
    in_table[sorting] = sums - np.repeat(sums[begins], sizes) + 1
    counts: list[list[tuple[str, int]]] = [[] for _ in range(transactions)]
    events = np.add.reduceat(sorted_weights, begins) if len(keys) else []
    for key, count in zip(sorted_keys[begins].tolist(), list(events), strict=True):
        counts[key // len(names)].append((names[key % len(names)], int(count)))
    return EventOrders(total, in_table, tuple(tuple(one) for one in counts))


def place_text(file_number: int, position: int, failovers: int = 0) -> str:
    """The place of a position between two transactions: not after the rows of any transaction that follows."""
    return f"{era(failovers)}{file_number:0{_FILE_DIGITS}d}.{position:0{_POSITION_DIGITS}d}"


def place_texts(files: Any, positions: Any, events: Any, rows: Any, failovers: int = 0) -> Any:
    """The places of rows as Arrow strings, from numpy arrays with an element for each row."""
    prefix = np.frombuffer(era(failovers).encode(), np.uint8)
    parts = [np.broadcast_to(prefix, (len(rows), len(prefix)))]
    for values, digits in (
        (files, _FILE_DIGITS),
        (positions, _POSITION_DIGITS),
        (events, _NUMBER_DIGITS),
        (rows, _NUMBER_DIGITS),
    ):
        powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
        parts.append((values.reshape(-1, 1) // powers % 10 + 48).astype(np.uint8))
        parts.append(np.full((len(rows), 1), ord("."), np.uint8))
    text = np.ascontiguousarray(np.hstack(parts[:-1]))
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * text.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)
