"""Machine: captured changes as records for a topic: events, then transforms, then converters to bytes.

The records of several tables are put into the order of their changes, window by window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import np, pa
from barnabas.spark.connectors.capture.errors import not_sent
from barnabas.spark.connectors.capture.options import CaptureOptions, UnavailableValues
from barnabas.spark.connectors.capture.ports import CapturedChanges
from barnabas.spark.connectors.events.envelope import ORDINAL, change_records, columns_without_placeholder
from barnabas.spark.connectors.events.metadata import heartbeat_records, transaction_records
from barnabas.spark.connectors.record_encoder import RECORD_PREFIXES, RecordEncoder

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

WINDOW_BYTES: Final = 32 << 20
"""About how many bytes of encoded records of several tables are put into order at once."""
FIRST_RECORD_BYTES: Final = 8 << 10
"""The size of a record that is assumed until some were encoded."""
_NAMES: Final = ("topic", "key", "value", "headers", "timestamp")


class RecordsOutput:
    """Makes records with the converters of a query. Raises ConverterConfigError at once if their options are wrong."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._encoder = RecordEncoder(options.given.under(*RECORD_PREFIXES))
        self._record_bytes = FIRST_RECORD_BYTES

    def records(self, captured: CapturedChanges) -> Iterator[Any]:
        """The records of the changes and of the transactions: batches of topic, key, value, headers, timestamp.

        Raises CaptureError for a value that the database did not send and for which no placeholder can stand.
        """
        events = self._options.events
        if captured.transactions:
            yield from self._encode(transaction_records(captured.transactions, events))
        changed = [one.changes for one in captured.tables if len(one.changes)]
        if self._options.unavailable is UnavailableValues.FAIL:
            for changes in changed:
                if names := columns_without_placeholder(changes, events):
                    raise not_sent(changes.table.id, names, "")
        batches = [change_records(changes, events) for changes in changed]
        if len(batches) < 2:
            for batch in batches:
                yield from self._encode(batch)
            return
        for window in self._windows(batches):
            pieces = [piece for batch in window for piece in self._encode(batch, keep=ORDINAL)]
            if not pieces:
                continue
            table = pa.Table.from_batches(pieces)
            self._record_bytes = max(1, table.nbytes // table.num_rows)
            # The sort is stable, so the records of one change stay in their order.
            order = _pc.sort_indices(table, sort_keys=[(ORDINAL, "ascending")])
            yield from table.take(order).drop_columns([ORDINAL]).combine_chunks().to_batches()

    def _windows(self, batches: list[Any]) -> Iterator[list[Any]]:
        """Divide the records of several tables into windows of about WINDOW_BYTES, in the order of their changes.

        The records of a window are encoded before they are put into order, so a window must fit into memory and into
        one Arrow array.
        """
        ordinals = [batch.column(ORDINAL).to_numpy() for batch in batches]
        merged = np.sort(np.concatenate(ordinals))
        low = 0
        while low < len(merged):
            high = min(low + max(1, WINDOW_BYTES // self._record_bytes), len(merged)) - 1
            first, last = merged[low], merged[high]
            cuts = [np.searchsorted(one, (first, last + 1)).tolist() for one in ordinals]
            yield [batch.slice(at, end - at) for batch, (at, end) in zip(batches, cuts, strict=True) if end > at]
            low = int(np.searchsorted(merged, last + 1))

    def heartbeat(self, time_ms: int) -> Iterator[Any]:
        """The heartbeat record of this time."""
        yield from self._encode(heartbeat_records(time_ms, self._options.events))

    def _encode(self, batch: Any, keep: str | None = None) -> Iterator[Any]:
        yield from self._encoder.encode(batch, (*_NAMES, keep) if keep else _NAMES)


def check_records_output(options: CaptureOptions) -> None:
    """Raise OptionError, ConverterConfigError or TransformConfigError for options with which no records can be made."""
    RecordsOutput(options)
