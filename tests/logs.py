"""What a test finds in the log. Other loggers write into it, too, whenever they like: on a busy machine for example the
watchdog of the event loop of a broker that another test has started in this process."""

from __future__ import annotations

import logging

import pytest


def logged(caplog: pytest.LogCaptureFixture, logger: str) -> list[logging.LogRecord]:
    """The records of this logger, and of those below it."""
    return [record for record in caplog.records if record.name == logger or record.name.startswith(f"{logger}.")]


def messages(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    """The messages of this logger, and of those below it."""
    return [record.getMessage() for record in logged(caplog, logger)]
