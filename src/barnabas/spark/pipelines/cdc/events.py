"""Shell: the change events of a source as rows of a table, and the newest event of each key, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.spark.connectors.sinking.options import UNAVAILABLE_VALUE
from barnabas.spark.connectors.sinking.presence import unsent_in_columns
from barnabas.spark.pipelines.cdc.delta import DeltaChangeTable
from barnabas.spark.pipelines.cdc.merging import (
    DELETED,
    RESERVED_PREFIX,
    SEQUENCE,
    ChangeRules,
    check_type,
    sequence_columns,
    table_columns,
)
from barnabas.spark.pipelines.errors import ChangeEventError

_UNORDERED = f"{RESERVED_PREFIX}unordered"
_NEWEST = f"{RESERVED_PREFIX}newest"


def change_events(source: Any, rules: ChangeRules) -> Any:
    """The events with the columns of the table, the hidden columns of their sequence, and whether they delete. Raises
    GraphError.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    names = table_columns(source.columns, rules)
    for key in rules.keys:
        check_type(f"the key {key}", source.select(f"`{key}`").schema[0].dataType.typeName())
    sequence = _expression(rules.sequence_by)
    of = source.select(sequence.alias(SEQUENCE)).schema[0].dataType
    parts = {field.name: field.dataType for field in of.fields} if isinstance(of, StructType) else {}
    for part, data_type in parts.items() or [("sequence_by", of)]:
        check_type("sequence_by" if part == "sequence_by" else f"{part} in sequence_by", data_type.typeName())
    values = [sequence.getField(part) for part in parts] or [sequence]
    is_delete = sf.lit(False) if rules.apply_as_deletes is None else _expression(rules.apply_as_deletes)
    return source.select(
        *(sf.col(f"`{name}`") for name in names),
        *(value.alias(name) for value, name in zip(values, sequence_columns(len(parts)), strict=True)),
        sf.coalesce(is_delete, sf.lit(False)).alias(DELETED),
    )


def sequences_of(events: Any) -> tuple[str, ...]:
    """The names of the sequence's columns in the result of `change_events`."""
    return tuple(name for name in events.columns if name.startswith(SEQUENCE))


def newest_events(events: Any, keys: Sequence[str]) -> Any:
    """The newest event of each key. At the same sequence, an upsert is newer than a delete. The last column says
    whether an event of the key has no sequence.
    """
    from pyspark.sql import functions as sf

    sequences = sequences_of(events)
    rest = [sf.col(f"`{name}`") for name in events.columns if name not in keys]
    order = sf.struct(*(sf.col(f"`{name}`") for name in sequences), ~sf.col(DELETED))
    has_none = sf.lit(False)
    for name in sequences:
        has_none = has_none | sf.col(f"`{name}`").isNull()
    newest = events.groupBy(*(sf.col(f"`{key}`") for key in keys)).agg(
        sf.max_by(sf.struct(*rest), order).alias(_NEWEST), sf.bool_or(has_none).alias(_UNORDERED)
    )
    return newest.select(*(f"`{key}`" for key in keys), f"{_NEWEST}.*", _UNORDERED)


@dataclass(frozen=True, slots=True)
class ChangeWriter:
    """Applies micro-batches of events to a table; Spark calls it for each micro-batch (`foreachBatch`)."""

    flow: str
    table: DeltaChangeTable

    def __call__(self, batch: Any, batch_id: int) -> None:
        """Raises ChangeEventError for an event without a key or without a sequence."""
        newest = newest_events(batch, self.table.keys).toArrow()
        for key in self.table.keys:
            if newest[key].null_count:
                raise ChangeEventError(
                    f"micro-batch {batch_id} of {self.flow} has events in which the key {key} is null; correct them at "
                    "their source, or filter them out"
                )
        if True in newest[_UNORDERED].to_pylist():
            raise ChangeEventError(
                f"micro-batch {batch_id} of {self.flow} has events in which sequence_by is null, so that their "
                "order is unknown; correct them at their source, or filter them out"
            )
        check_values(newest, self.flow, batch_id)
        if newest.num_rows:
            self.table.apply(newest.drop_columns([_UNORDERED]))


def check_values(events: Any, flow: str, batch_id: int) -> None:
    """Raise ChangeEventError if the row of an event (an Arrow table) lacks a value that its database did not send: an
    older event may have had it.
    """
    for chunk in events.combine_chunks().to_batches():
        deleted = chunk.column(DELETED).to_numpy(zero_copy_only=False)
        for name, mask in unsent_in_columns(chunk, UNAVAILABLE_VALUE).items():
            if (mask.to_numpy(zero_copy_only=False) & ~deleted).any():
                raise ChangeEventError(
                    f"micro-batch {batch_id} of {flow} has events without the value of {name}, which did not change, so"
                    " that its database did not send it. A row of the table needs all values: capture with"
                    " unavailable.value.handling.mode=reselect, or with PostgreSQL's REPLICA IDENTITY FULL"
                )


def _expression(given: Any) -> Any:
    from pyspark.sql import functions as sf

    return sf.expr(given) if isinstance(given, str) else given
