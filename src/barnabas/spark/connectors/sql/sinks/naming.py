"""Codec: the names of tables in options -> paths, and the names of staging tables.

    barnabas_s_<query id, 32 digits>_<time, 8 hexadecimal digits><random, 8>     stages of a query
    barnabas_j_<job id, 32 digits>_<time><random>                                stages of a `df.write`

The name of a stage has the second of its creation, so that stages of drivers that never come back can be dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from barnabas.spark.connectors.sql.dialects import Dialect
from barnabas.spark.connectors.sql.sinks.options import Quoting, SqlSinkOptions
from barnabas.spark.connectors.sql.sinks.statements import JOBS, LEDGER
from barnabas.spark.errors import OptionError

STAGE_PREFIX: Final = "barnabas_"
LIFETIME_S: Final = 7 * 24 * 3600
"""Stages that are older belong to drivers that never come back."""
_STAGE: Final = re.compile(r"barnabas_([sj])_([0-9a-f]{32})_([0-9a-f]{8})[0-9a-f]{8}")
_PART: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^."`]+?))\s*(?:\.|$)')


def stage_name(query_id: str, now_s: int, token: int) -> str:
    """`token` is a random number of 32 bits."""
    return f"{_of_query(query_id)}{now_s & 0xFFFFFFFF:08x}{token & 0xFFFFFFFF:08x}"


def orphans(names: Iterable[str], query_id: str | None, now_s: int) -> list[str]:
    """The stages that are of no use when a micro-batch of the query begins: its own ones, and all that are old."""
    own = None if query_id is None else _of_query(query_id)
    found = []
    for name in sorted(names):
        match = _STAGE.fullmatch(name)
        if match is None:
            continue
        if (own is not None and name.startswith(own)) or now_s - int(match[3], 16) > LIFETIME_S:
            found.append(name)
    return found


def _of_query(query_id: str) -> str:
    kind = "j" if query_id.startswith(JOBS) else "s"
    digits = query_id.removeprefix(JOBS).replace("-", "").lower()
    if not re.fullmatch(r"[0-9a-f]{32}", digits):
        digits = hashlib.blake2b(query_id.encode(), digest_size=16).hexdigest()
    return f"{STAGE_PREFIX}{kind}_{digits}_"


def ledger_path(options: SqlSinkOptions) -> tuple[str, ...]:
    return own_path(options, LEDGER)


def own_path(options: SqlSinkOptions, name: str) -> tuple[str, ...]:
    """The path of the ledger or of a stage."""
    return (name,) if options.staging_schema is None else (options.staging_schema, name)


def table_path(options: SqlSinkOptions, text: str) -> tuple[str, ...]:
    """The path of a table from the text of table.name.format. Parts in quotes may have dots. Raises OptionError."""
    parts: list[str] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise OptionError(
                f"the name of the table {text!r} is not understood at {text[position:]!r}: give schema.table"
            )
        quoted, back, plain = match.groups()
        if plain is not None:
            parts.append(_folded(options, plain))
        else:
            parts.append(quoted.replace('""', '"') if quoted is not None else back.replace("``", "`"))
        position = match.end()
    if text.endswith(".") or not parts or not all(parts):
        raise OptionError(f"the name of the table {text!r} has an empty part: give schema.table, or table")
    if len(parts) == 3 and options.dialect is Dialect.POSTGRES and parts[0] == options.address.database:
        parts = parts[1:]
    if len(parts) > 2:
        raise OptionError(
            f"the name of the table {text!r} has {len(parts)} parts, and {options.dialect} has at most 2: set"
            " table.name.format, or change the topics' names with the transform RegexRouter"
        )
    return tuple(parts)


def column_name(options: SqlSinkOptions, name: str) -> str:
    """The name of a column of rows in the table."""
    return _folded(options, name)


def _folded(options: SqlSinkOptions, name: str) -> str:
    """A name in the case that the database gives to it without quotes."""
    return name.lower() if options.quoting is Quoting.NEVER and options.dialect is Dialect.POSTGRES else name
