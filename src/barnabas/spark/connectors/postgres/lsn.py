"""Codec: log sequence numbers, positions in PostgreSQL's write-ahead log: `16/B374D848` in SQL, an int here.

Source: PostgreSQL's manual, chapter "Data Types", section "pg_lsn Type".
"""

from __future__ import annotations

import re
from typing import Final

from barnabas.spark.connectors.postgres.errors import PostgresValueError

LSN_MAX: Final = (1 << 64) - 1
_TEXT: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", re.ASCII)


def parse_lsn(text: str) -> int:
    """The position in bytes. Raises PostgresValueError if the text is not a pg_lsn."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise PostgresValueError(f"{text!r} is not a log sequence number: it should look like 16/B374D848")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(lsn: int) -> str:
    """The position as PostgreSQL prints it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
