"""Value: the arguments of `create_auto_cdc_flow`, and the rules that they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.spark.pipelines.cdc.merging import ChangeRules
from barnabas.spark.pipelines.errors import DefinitionError

_COLUMN: Final = re.compile(r"Column<'(.*)'>", re.DOTALL)
"""How Spark prints a column."""


@dataclass(frozen=True, slots=True)
class ChangeFlow:
    """The arguments, with the names and the defaults of pyspark.pipelines. Columns are names, or Spark's Column."""

    target: str
    source: str
    keys: Sequence[Any]
    sequence_by: Any
    apply_as_deletes: Any = None
    column_list: Sequence[Any] | None = None
    except_column_list: Sequence[Any] | None = None
    stored_as_scd_type: int | str | None = None
    name: str | None = None
    track_history_column_list: Sequence[Any] | None = field(default=None, kw_only=True)
    track_history_except_column_list: Sequence[Any] | None = field(default=None, kw_only=True)
    spark_conf: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @classmethod
    def of(cls, *given: Any, **named: Any) -> ChangeFlow:
        """The flow of a call with these arguments. Raises TypeError, as a call of Spark's function does."""
        try:
            return cls(*given, **{**named, "spark_conf": named.get("spark_conf") or {}})
        except TypeError as error:
            raise TypeError(str(error).replace("ChangeFlow.__init__()", "create_auto_cdc_flow()")) from error


def change_rules(flow: ChangeFlow) -> ChangeRules:
    """Check the arguments. Raises DefinitionError."""
    for name in ("target", "source"):
        if not isinstance(getattr(flow, name), str):
            raise DefinitionError(f"{name} must be the name of a table, not {type(getattr(flow, name)).__name__}")
    if str(flow.stored_as_scd_type or 1) == "2":
        raise DefinitionError(
            "stored_as_scd_type=2 keeps the history of each row, for which barnabas pipelines has no writer; use 1, "
            "or append the events to a streaming table with append_flow and compute the history from it"
        )
    if str(flow.stored_as_scd_type or 1) != "1":
        raise DefinitionError(f"stored_as_scd_type must be 1 or 2, not {flow.stored_as_scd_type!r}")
    if flow.track_history_column_list or flow.track_history_except_column_list:
        raise DefinitionError("the columns of a history can only be given with stored_as_scd_type=2")
    if flow.column_list and flow.except_column_list:
        raise DefinitionError("give column_list or except_column_list, not both")
    keys = _names("keys", flow.keys)
    if not keys:
        raise DefinitionError("keys must have at least one column")
    if flow.sequence_by is None:
        raise DefinitionError("sequence_by must be an expression that orders the events of a key")
    return ChangeRules(
        keys,
        flow.sequence_by,
        flow.apply_as_deletes,
        _names("column_list", flow.column_list),
        _names("except_column_list", flow.except_column_list),
    )


def _names(argument: str, given: Sequence[Any] | None) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given or [], Sequence):
        raise DefinitionError(f"{argument} must be a list of columns, not {given!r}")
    return tuple(_name(argument, column) for column in given or [])


def _name(argument: str, column: Any) -> str:
    """The name of a column without a qualifier."""
    found = _COLUMN.fullmatch(str(column))
    text = column if isinstance(column, str) else found[1] if found else ""
    name = text.strip("`")
    if not name or re.search(r"[.`()\s]", name):
        raise DefinitionError(f"{argument} must have names of columns such as 'id', not {text or column!r}")
    return name
