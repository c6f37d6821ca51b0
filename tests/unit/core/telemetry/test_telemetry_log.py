"""The log of a process: times with their zone, repeated lines, rotation, levels."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.core.telemetry.levels import (
    LEVELS,
    check_level,
    check_logger,
    describe_levels,
    set_level,
    unset_level,
)
from barnabas.core.telemetry.log import AUDIT_LOGGER, LINES, LogFile, configure_logging
from barnabas.core.telemetry.repeated import ALLOWED

log = get_logger("barnabas.test.log")


@pytest.fixture(autouse=True)
def _usual_logging() -> Iterator[None]:
    names = ("barnabas", AUDIT_LOGGER, "barnabas.test.log")
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in names}
    yield
    for name, (level, propagate) in before.items():
        logger = logging.getLogger(name)
        for handler in logger.handlers:
            handler.close()
        logger.handlers.clear()
        logger.setLevel(level)
        logger.propagate = propagate


def test_times_have_their_zone() -> None:
    stream = io.StringIO()
    configure_logging("info", stream=stream)
    log.info("it happened")
    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d INFO barnabas.test.log it happened\n", stream.getvalue()
    )


def test_repeated_warnings_are_counted_when_the_log_is_closed() -> None:
    stream = io.StringIO()
    configure_logging("info", as_json=True, stream=stream)
    before = LINES["WARNING"]
    for number in range(ALLOWED + 3):
        log.warning("again", number=number)
    logging.getLogger("barnabas").handlers[0].close()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [event.get("number") for event in events] == [*range(ALLOWED), None]
    assert (events[-1]["event"], events[-1]["level"], events[-1]["repeated"]) == ("again", "WARNING", 3)
    assert LINES["WARNING"] == before + ALLOWED + 3


def test_lines_below_info_are_all_written() -> None:
    stream = io.StringIO()
    configure_logging("debug", stream=stream)
    for _ in range(ALLOWED + 3):
        log.debug("detail")
    assert stream.getvalue().count("detail") == ALLOWED + 3


def test_a_log_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    configure_logging("debug", file=LogFile(str(path), bytes_max=500, kept=2))
    for number in range(40):
        log.debug("a line", number=number)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node.log", "node.log.1", "node.log.2"]
    assert path.read_text().endswith("number=39\n")


def test_levels_are_changed_and_removed() -> None:
    configure_logging("warning", stream=io.StringIO())
    assert describe_levels()["root"] == "WARN"
    assert describe_levels()["barnabas.test.log"] == "WARN"
    check_level("barnabas.test.log", "TRACE")
    set_level("barnabas.test.log", "TRACE")
    assert describe_levels()["barnabas.test.log"] == "TRACE"
    unset_level("barnabas.test.log")
    set_level("root", "ERROR")
    assert describe_levels()["barnabas.test.log"] == "ERROR"
    set_level("root", "FATAL")
    assert list(LEVELS) == ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"]
    assert describe_levels()["root"] == "FATAL"


def test_the_level_of_the_audit_log_can_be_removed() -> None:
    configure_logging("info", stream=io.StringIO())
    set_level(AUDIT_LOGGER, "DEBUG")
    assert describe_levels()[AUDIT_LOGGER] == "DEBUG"
    unset_level(AUDIT_LOGGER)
    assert describe_levels()[AUDIT_LOGGER] == "INFO"


@pytest.mark.parametrize(("name", "level"), [("barnabas.nothing", "INFO"), ("barnabas.test.log", "LOUD")])
def test_unknown_loggers_and_levels_are_refused(name: str, level: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_level(name, level)
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_loggers_of_other_libraries_are_unknown() -> None:
    with pytest.raises(KafkaError, match="does not exist"):
        check_logger("asyncio")
