"""Sources that a worker process keeps open for its next task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.spark.connectors.capture import reuse
from barnabas.spark.connectors.capture.ports import Connector
from barnabas.spark.connectors.capture.reader import parse
from barnabas.spark.connectors.capture.reuse import IDLE_MAX, REUSED_SECONDS, lent_source


class CountedSource:
    """A source that knows whether it was closed, and whether its connection works."""

    def __init__(self, options: Any) -> None:
        self.is_open = True
        self.is_alive = True
        OPENED.append(self)

    def close(self) -> None:
        self.is_open = False


OPENED: list[CountedSource] = []


def is_alive(source: Any) -> bool:
    return bool(source.is_alive)


KEPT: Connector = Connector("barnabas.memory", "memory", "1", (), {}, CountedSource, is_alive)  # type: ignore[arg-type]


def options(folder: str = "a") -> Any:
    return parse({"stagingLocation": folder, "output": "rows"}, KEPT)


@pytest.fixture(autouse=True)
def opened() -> Iterator[list[CountedSource]]:
    OPENED.clear()
    yield OPENED
    reuse._idle.clear()


def use(connector: Connector, folder: str = "a") -> Any:
    with lent_source(connector, options(folder)) as source:
        return source


def test_the_next_task_uses_the_same_source() -> None:
    assert use(KEPT) is use(KEPT)
    assert len(OPENED) == 1


def test_two_tasks_at_once_have_two_sources() -> None:
    with lent_source(KEPT, options()) as one, lent_source(KEPT, options()) as other:
        assert one is not other


def test_another_query_has_a_source_of_its_own() -> None:
    assert use(KEPT, "a") is not use(KEPT, "b")


def test_a_source_of_a_failed_or_ended_task_is_closed() -> None:
    with pytest.raises(RuntimeError), lent_source(KEPT, options()):
        raise RuntimeError

    def reading() -> Iterator[int]:
        with lent_source(KEPT, options()):
            yield 1
            yield 2

    rows = reading()
    assert next(rows) == 1
    rows.close()  # type: ignore[attr-defined]
    assert [one.is_open for one in OPENED] == [False, False]


def test_a_source_without_a_connection_is_replaced() -> None:
    use(KEPT).is_alive = False
    assert use(KEPT).is_open
    assert [one.is_open for one in OPENED] == [False, True]


def test_a_source_is_opened_again_after_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("barnabas.spark.connectors.capture.reuse.time.monotonic", lambda: now)
    use(KEPT)
    now += REUSED_SECONDS + 1
    use(KEPT)
    assert [one.is_open for one in OPENED] == [False, True]


def test_few_sources_stay_open() -> None:
    for number in range(IDLE_MAX + 2):
        use(KEPT, str(number))
    assert [one.is_open for one in OPENED] == [False] * 2 + [True] * IDLE_MAX


def test_a_connector_may_open_a_source_for_each_task() -> None:
    single: Connector = Connector("barnabas.memory", "memory", "1", (), {}, CountedSource)  # type: ignore[arg-type]
    use(single)
    use(single)
    assert [one.is_open for one in OPENED] == [False, False]
