"""Machine: captured changes as records for a topic: events, then transforms, then converters to bytes.

The records of several tables are put into the order of their changes, piece by piece. With errors.tolerance=all,
records that a transform cannot change are left out and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow.compute

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import CapturedChanges
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.events.envelope import ORDINAL, change_records
from barnabas.spark.connectors.events.metadata import heartbeat_records, transaction_records
from barnabas.spark.connectors.transforms.chain import compile_chain
from barnabas.spark.connectors.transforms.errors import RowFailure
from barnabas.spark.errors import OptionError

log = logging.getLogger("barnabas.spark")

_pc: Any = pyarrow.compute  # Any, because pyarrow.compute creates its functions at run time

ENCODED_BYTES: Final = 32 << 20
"""About how many bytes of embedded schemas (schemas.enable) are in the records that are encoded at once."""

_TIME: Final = pa.timestamp("us", "UTC")
_NAMES: Final = ("topic", "key", "value", "headers", "timestamp")


class RecordsOutput:
    """Makes records with the converters of a query. Raises ConverterConfigError at once if their options are wrong."""

    def __init__(self, options: CaptureOptions) -> None:
        self._options = options
        config = options.given.under("key.converter", "value.converter")
        self._key = make_converter("key.converter", config, is_key=True)
        self._value = make_converter("value.converter", config, is_key=False)
        self._chain = compile_chain(options.given.under("transforms", "predicates"))
        self._tolerates = _tolerates_errors(options)

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
        for transformed in self._transform(batch):
            yield from self._to_bytes(transformed, [*_NAMES, keep] if keep else list(_NAMES))

    def _transform(self, batch: Any) -> list[Any]:
        if not self._chain:
            return [batch]
        failures: list[RowFailure] | None = [] if self._tolerates else None
        batches: list[Any] = self._chain.apply(batch, failures)
        for failure in failures or ():
            log.warning("left out a record: transforms.%s: %s", failure.label, failure.message)
        return batches

    def _to_bytes(self, batch: Any, names: list[str]) -> Iterator[Any]:
        fields = batch.schema.field("key"), batch.schema.field("value")
        size = self._key.row_bytes(fields[0]) + self._value.row_bytes(fields[1])
        step = max(1, ENCODED_BYTES // max(1, size))
        for first in range(0, batch.num_rows, step):
            part = batch.slice(first, step)
            topics = part.column("topic")
            columns = {name: part.column(name) for name in names}
            columns["key"] = self._key.encode_column(part.column("key"), fields[0], topics)
            columns["value"] = self._value.encode_column(part.column("value"), fields[1], topics)
            columns["timestamp"] = columns["timestamp"].cast(_TIME)
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def _tolerates_errors(options: CaptureOptions) -> bool:
    """errors.tolerance. Raises OptionError for another value, and for options of errors that sources do not have."""
    given = options.given.under("errors.")
    tolerance = given.pop("errors.tolerance", "none").strip().lower()
    if tolerance not in ("none", "all"):
        raise OptionError(f"errors.tolerance must be none or all, got {tolerance!r}")
    unknown = sorted(given.keys() - {"errors.log.enable", "errors.log.include.messages"})
    if unknown:
        raise OptionError(f"a source has no option {unknown[0]}: it has errors.tolerance, and logs what it leaves out")
    return tolerance == "all"


def check_records_output(options: CaptureOptions) -> None:
    """Raise OptionError, ConverterConfigError or TransformConfigError for options with which no records can be made."""
    RecordsOutput(options)
