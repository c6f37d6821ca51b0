"""Machine: batches of records of a source -> transforms -> converters -> batches of bytes for a topic.

With errors.tolerance=all, records that a transform cannot change are left out and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from barnabas.client.columns.byte_column import pa
from barnabas.spark.connectors.converters.errors import ConverterConfigError
from barnabas.spark.connectors.converters.making import make_converter
from barnabas.spark.connectors.option_rows import is_json_without_schemas
from barnabas.spark.connectors.transforms.chain import compile_chain
from barnabas.spark.connectors.transforms.errors import RowFailure, TransformConfigError
from barnabas.spark.errors import OptionError

log = logging.getLogger("barnabas.spark")

ENCODED_BYTES: Final = 32 << 20
"""About how many bytes of embedded schemas (schemas.enable) are in the records that are encoded at once."""
RECORD_PREFIXES: Final = ("key.converter", "value.converter", "header.converter", "transforms", "predicates", "errors.")
"""The starts of the names of options that a RecordEncoder reads."""

_ACCEPTED_ERRORS: Final = frozenset(
    {"errors.log.enable", "errors.log.include.messages", "errors.retry.timeout", "errors.retry.delay.max.ms"}
)
"""Options of errors without effect: what is left out is always logged, and a query that failed is started again."""
_TIME: Final = pa.timestamp("us", "UTC")


class RecordEncoder:
    """Makes records with the converters and transforms of a query. `config` has the options whose names, in lower case,
    begin with RECORD_PREFIXES. Raises ConverterConfigError, TransformConfigError or OptionError if they are wrong.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        config = {**_decimal_formats(config), **config}
        self._key = make_converter("key.converter", config, is_key=True)
        self._value = make_converter("value.converter", config, is_key=False)
        chosen = {name: text for name, text in config.items() if name.startswith(("transforms", "predicates"))}
        self._chain = compile_chain(chosen)
        self._tolerates = tolerates_errors(config)

    def encode(self, batch: Any, names: Sequence[str]) -> Iterator[Any]:
        """The records as batches of these columns, among which topic, key and value are."""
        for transformed in self._transform(batch):
            yield from self._to_bytes(transformed, names)

    def _transform(self, batch: Any) -> list[Any]:
        if not self._chain:
            return [batch]
        failures: list[RowFailure] | None = [] if self._tolerates else None
        batches: list[Any] = self._chain.apply(batch, failures)
        for failure in failures or ():
            log.warning("left out a record: transforms.%s: %s", failure.label, failure.message)
        return batches

    def _to_bytes(self, batch: Any, names: Sequence[str]) -> Iterator[Any]:
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
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names=list(names))


def _decimal_formats(config: Mapping[str, str]) -> dict[str, str]:
    """decimal.format=NUMERIC for JSON without a schema, in which a reader could not tell base64 from any other text."""
    return {
        f"{part}.decimal.format": "NUMERIC"
        for part in ("key.converter", "value.converter")
        if is_json_without_schemas(config, part)
    }


def tolerates_errors(config: Mapping[str, str]) -> bool:
    """errors.tolerance. Raises OptionError for another value, and for options of errors that sources do not have."""
    given = {name: text for name, text in config.items() if name.startswith("errors.")}
    tolerance = given.pop("errors.tolerance", "none").strip().lower()
    if tolerance not in ("none", "all"):
        raise OptionError(f"errors.tolerance must be none or all, got {tolerance!r}")
    unknown = sorted(given.keys() - _ACCEPTED_ERRORS)
    if unknown:
        raise OptionError(f"a source has no option {unknown[0]}: it has errors.tolerance, and logs what it leaves out")
    return tolerance == "all"


def check_record_options(config: Mapping[str, str]) -> None:
    """Raise OptionError for options with which no records can be made."""
    try:
        RecordEncoder(config)
    except (ConverterConfigError, TransformConfigError) as error:
        raise OptionError(str(error)) from error
