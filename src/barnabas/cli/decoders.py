"""Codec: records of the cluster's own topics as text, for the dump tools."""

from __future__ import annotations

from barnabas.core.errors import BarnabasError
from barnabas.records.batch import Record


def metadata_record(record: Record) -> str:
    """A record of `__cluster_metadata`."""
    from barnabas.metadata.records import decode_record

    if record.value is None:
        return ""
    try:
        return f" payload: {decode_record(record.value)!r}"
    except BarnabasError as error:
        return f" (not readable: {error})"


def offsets_record(record: Record) -> str:
    """A record of `__consumer_offsets`."""
    from barnabas.coordination.group.shard import FORMAT
    from barnabas.coordination.ports import LogRecord

    if record.key is None:
        return " (no key)"
    try:
        decoded = FORMAT.decode(LogRecord(record.key, record.value))
    except BarnabasError as error:
        return f" (not readable: {error})"
    if decoded is None:
        return " (of a kind this version does not know)"
    return f" key: {decoded.key!r} payload: {decoded.value!r}"
