"""Codec: the position of a query in PostgreSQL, as a JSON object in Spark's checkpoint.

    {"lsn": "16/B374D848", "system": "7301294837512038401", "timeline": 1, "tables": {"public.orders": "16402"}}

All transactions whose commit records start before `lsn` are read. `system` is the server's system identifier, as text
because JSON numbers of many programs have 53 bits. `timeline` is that of the log, and `tables` has the OIDs of the
captured tables; positions of earlier releases have neither. `starts` is there if the query has started anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.spark.connectors.postgres.errors import PostgresValueError
from barnabas.spark.connectors.postgres.lsn import format_lsn, parse_lsn
from barnabas.spark.connectors.postgres.setup_state import Checkpoint


def to_position(checkpoint: Checkpoint) -> dict[str, Any]:
    position: dict[str, Any] = {"lsn": format_lsn(checkpoint.lsn), "system": str(checkpoint.system_identifier)}
    if checkpoint.timeline:
        position["timeline"] = checkpoint.timeline
    if checkpoint.tables:
        position["tables"] = dict(checkpoint.tables)
    if checkpoint.starts:
        position["starts"] = checkpoint.starts
    return position


def from_position(position: Mapping[str, Any]) -> Checkpoint:
    """Raises PostgresValueError."""
    lsn, system = position.get("lsn"), position.get("system")
    timeline, tables, starts = position.get("timeline", 0), position.get("tables", {}), position.get("starts", 0)
    known = isinstance(timeline, int) and isinstance(tables, Mapping) and isinstance(starts, int)
    if not isinstance(lsn, str) or not isinstance(system, str) or not system.isdecimal() or not known:
        raise PostgresValueError(
            f"{dict(position)} is not a position in PostgreSQL, such as"
            ' {"lsn": "16/B374D848", "system": "7301294837512038401"}: use the checkpoint of this query, or a new one'
        )
    oids = tuple(sorted((str(table), str(oid)) for table, oid in tables.items()))
    return Checkpoint(parse_lsn(lsn), int(system), timeline, oids, starts)
