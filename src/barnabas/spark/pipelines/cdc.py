"""Value: the arguments of create_auto_cdc_flow, checked and normalized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.spark.pipelines.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class CdcArguments:
    """Columns are names; `sequence_by` and `apply_as_deletes` are SQL expressions or columns of Spark."""

    source: str
    keys: tuple[str, ...]
    sequence_by: Any
    apply_as_deletes: Any
    column_list: tuple[str, ...]
    except_column_list: tuple[str, ...]

    @classmethod
    def build(
        cls,
        *,
        source: str,
        keys: list[Any],
        sequence_by: Any,
        apply_as_deletes: Any,
        column_list: list[Any] | None,
        except_column_list: list[Any] | None,
        scd_type: str,
    ) -> CdcArguments:
        """Raises DefinitionError."""
        if scd_type != "1":
            raise DefinitionError("create_auto_cdc_flow: only stored_as_scd_type=1 is supported")
        if column_list and except_column_list:
            raise DefinitionError("create_auto_cdc_flow: give column_list or except_column_list, not both")
        if not keys:
            raise DefinitionError("create_auto_cdc_flow: keys is empty; name the columns that identify a row")
        return cls(
            source,
            tuple(map(_name, keys)),
            sequence_by,
            apply_as_deletes,
            tuple(map(_name, column_list or ())),
            tuple(map(_name, except_column_list or ())),
        )


def _name(column: Any) -> str:
    """The name in `"a"` or `col("a")`."""
    if isinstance(column, str):
        return column
    text = str(column)
    if text.startswith("Column<'") and text.endswith("'>"):
        return text[len("Column<'") : -2]
    raise DefinitionError(f"create_auto_cdc_flow: {column!r} is not the name of a column")
