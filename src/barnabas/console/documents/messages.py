"""Shell: the message browser's page."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from barnabas.console.browse.decoding import FORMATS
from barnabas.console.browse.query import STARTS, parse_query, positions_text
from barnabas.console.browse.reading import ReadProgress
from barnabas.console.browse.records import RecordView
from barnabas.console.documents.topics import describe
from barnabas.console.sources import Call

STOPPED = {
    "end": "All records up to the end were read.",
    "records": "The page is full.",
    "scanned": "The limit of records for one search was reached; continue from here.",
    "bytes": "The limit of bytes for one search was reached; continue from here.",
    "seconds": "The time for one search was reached; continue from here.",
}


async def messages(call: Call) -> dict[str, Any]:
    """The records that the query string selects, newest first if it asks for the newest."""
    view = await describe(call)
    limits = call.sources.settings.browse
    query = parse_query(call.query, limit_max=limits.records, now_ms=call.now_ms)
    progress = ReadProgress()
    viewer = call.sources.viewer(view.name, call.user)
    records: list[RecordView] = []
    older: dict[int, int] = {}
    if query.start == "newest":
        records, older = await call.sources.reader.newest(view.name, query, viewer, progress)
    elif query.start != "live":
        reading = call.sources.reader.read(view.name, query, viewer, progress, limit=query.limit)
        records = [record async for record in reading]
        records.sort(key=lambda r: (r.timestamp_ms, r.partition, r.offset))
    return {
        "topic": view.name,
        "partition_count": view.partition_count,
        "records": [record.document() for record in records],
        "query": {key: value for key, value in call.query.items() if value and key not in ("positions", "before")},
        "start": query.start,
        "limit": query.limit,
        "scanned": progress.scanned,
        "scanned_bytes": progress.scanned_bytes,
        "stopped": STOPPED.get(progress.stopped, ""),
        "more": progress.stopped not in ("end", ""),
        "next": positions_text(progress.next_positions()) if query.start != "newest" else "",
        "older": positions_text(older),
        "spans": {p.partition: asdict(span) for p, span in sorted(progress.spans.items())},
        "formats": FORMATS,
        "starts": STARTS,
        "value_bytes": limits.value_bytes,
    }


async def produce_form(call: Call) -> dict[str, Any]:
    """What the form for producing a record shows."""
    view = await describe(call)
    return {"topic": view.name, "partition_count": view.partition_count}
