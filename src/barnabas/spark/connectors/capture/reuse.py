"""Shell: sources that stay open from one task of a worker process to its next one.

To open a source takes connections, and queries for the settings and tables of the server, which cost more than the
changes of a small micro-batch. A source is opened again after REUSED_SECONDS, so that a query notices soon if the setup
of the server is changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from barnabas.core.reprs import repr_without
from barnabas.spark.connectors.capture.options import CaptureOptions
from barnabas.spark.connectors.capture.ports import ChangeSource, Connector

REUSED_SECONDS: Final = 60.0
IDLE_MAX: Final = 4
"""Sources that a process keeps open for its next tasks: one for each query, and these are few."""


class _Idle(Struct, frozen=True):
    """A source that no task uses, and when it was opened."""

    connector: str
    texts: Mapping[str, str]
    source: ChangeSource
    opened_at: float

    __repr__ = repr_without("texts")


_idle: list[_Idle] = []


@contextmanager
def lent_source(connector: Connector, options: CaptureOptions) -> Iterator[ChangeSource]:
    """A source of these options for one task. It is closed if the task fails or ends early."""
    used = _take(connector, options)
    source, opened_at = used or (connector.open(options), time.monotonic())
    is_done = False
    try:
        yield source
        is_done = True
    finally:
        if is_done and connector.is_alive is not None:
            _idle.append(_Idle(connector.format, options.given.texts, source, opened_at))
            while len(_idle) > IDLE_MAX:
                _idle.pop(0).source.close()
        else:
            source.close()


def _take(connector: Connector, options: CaptureOptions) -> tuple[ChangeSource, float] | None:
    """An idle source whose connections are alive. Those that are too old are closed."""
    now = time.monotonic()
    for one in [one for one in _idle if now > one.opened_at + REUSED_SECONDS]:
        _idle.remove(one)
        one.source.close()
    for one in _idle:
        if one.connector == connector.format and one.texts == options.given.texts:
            _idle.remove(one)
            if connector.is_alive is not None and connector.is_alive(one.source):
                return one.source, one.opened_at
            one.source.close()
            return None
    return None
