"""Machine: captured changes as records for a topic: events, then transforms, then converters to bytes.

The records of several tables are put into the order of their changes, piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import CapturedChanges
from barnabas.spark.connectors.events.envelope import ORDINAL, change_records
from barnabas.spark.connectors.events.metadata import heartbeat_records, transaction_records
from barnabas.spark.connectors.record_encoder import RECORD_PREFIXES, RecordEncoder

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

_NAMES: Final = ("topic", "key", "value", "headers", "timestamp")


class RecordsOutput:
    """Makes records with the converters of a query. Raises ConverterConfigError at once if their options are wrong."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        self._encoder = RecordEncoder(options.given.under(*RECORD_PREFIXES))

    def records(self, captured: CapturedChanges) -> Iterator[Any]:
        """The records of the changes and of the transactions: batches of topic, key, value, headers, timestamp."""
        events = self._options.events
        if captured.transactions:
            yield from self._encode(transaction_records(captured.transactions, events))
        batches = [change_records(one.changes, events) for one in captured.tables if len(one.changes)]
        if len(batches) < 2:
            for batch in batches:
                yield from self._encode(batch)
            return
        pieces = [piece for batch in batches for piece in self._encode(batch, keep=ORDINAL)]
        if not pieces:
            return
        table = pa.Table.from_batches(pieces)
        order = _pc.sort_indices(table, sort_keys=[(ORDINAL, "ascending")])  # stable: a change's records stay in order
        yield from table.take(order).drop_columns([ORDINAL]).combine_chunks().to_batches()

    def heartbeat(self, time_ms: int) -> Iterator[Any]:
        """The heartbeat record of this time."""
        yield from self._encode(heartbeat_records(time_ms, self._options.events))

    def _encode(self, batch: Any, keep: str | None = None) -> Iterator[Any]:
        yield from self._encoder.encode(batch, (*_NAMES, keep) if keep else _NAMES)


def check_records_output(options: CaptureOptions) -> None:
    """Raise OptionError, ConverterConfigError or TransformConfigError for options with which no records can be made."""
    RecordsOutput(options)
