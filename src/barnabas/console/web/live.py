"""Shell: what is not a page: the live view by server-sent events, and the download as JSON lines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from barnabas.console.browse.query import parse_query
from barnabas.console.browse.reading import ReadProgress
from barnabas.console.documents.topics import describe
from barnabas.console.errors import TooManyError
from barnabas.console.sources import Call
from barnabas.console.web.rendering import one_line, shown
from barnabas.core.errors import BarnabasError


class LiveViews:
    """Counts the live views, of which there is a limited number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold one of the places. Raises TooManyError if all are taken."""
        if self._open >= self._most:
            raise TooManyError(f"{self._most} live views are open, which is the limit: close one, or try again later.")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


async def live_events(call: Call, views: LiveViews) -> AsyncIterator[str]:
    """New records as server-sent events, until the time of a live view is over. Records above the limit of a second
    are counted, not sent.
    """
    try:
        async with views.one():
            async for text in _live_events(call):
                yield text
    except BarnabasError as error:
        yield event("over", {"reason": str(error)})


async def _live_events(call: Call) -> AsyncIterator[str]:
    limits = call.sources.settings.browse
    view = await describe(call)
    query = parse_query({**call.query, "start": "live"}, limit_max=limits.records, now_ms=call.now_ms)
    viewer = call.sources.viewer(view.name, call.user)
    now = call.admin.cluster.now
    ends_at, second, sent, skipped = now() + limits.live_seconds, int(now()), 0, 0
    async for records in call.sources.reader.tail(view.name, query, viewer):
        if int(now()) != second:
            second, sent = int(now()), 0
        for record in records:
            if sent >= limits.live_records_per_second:
                skipped += 1
                continue
            sent += 1
            yield event("record", row(record.document()))
        yield event("skipped", {"records": skipped}) if skipped else ": nothing new\n\n"
        if now() >= ends_at:
            break
    yield event("over", {"reason": f"A live view ends after {limits.live_seconds:.0f} s."})


async def download_lines(call: Call) -> AsyncIterator[bytes]:
    """The records of a query as JSON lines, oldest first, with their whole keys and values. The last line says why the
    download ended, if records are left.
    """
    limits = call.sources.settings.browse
    view = await describe(call)
    given = {**call.query, "limit": call.query.get("download") or str(limits.download_records)}
    query = parse_query(given, limit_max=limits.download_records, now_ms=call.now_ms)
    viewer, progress = call.sources.viewer(view.name, call.user), ReadProgress()
    if query.start == "newest":
        newest, _ = await call.sources.reader.newest(view.name, query, viewer, progress)
        for record in reversed(newest):
            yield line(record.document())
    else:
        reading = call.sources.reader.read(view.name, query, viewer, progress, limit=query.limit)
        async for record in reading:
            yield line(record.document())
    if progress.stopped != "end":
        yield line({"incomplete": progress.stopped, "next": progress.next_positions()})


def row(document: dict[str, Any]) -> dict[str, Any]:
    """A record as the live view shows it: texts of limited length."""
    return {
        **{name: document[name] for name in ("partition", "offset", "timestamp", "value_format", "value_size")},
        "key": one_line(document["key"]),
        "summary": one_line(document["value"]),
        "value": shown(document["value"]),
    }


def event(name: str, document: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(document, ensure_ascii=False, default=str)}\n\n"


def line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, default=str).encode() + b"\n"
