"""Shell: the structured log, a thin layer on the standard library's `logging`.

A log entry is a sentence and named values: `log.info("partition opened", topic="t", partition=0, offset=42)`. The text
form appends `key=value`; the JSON form writes one object per line. Times are in ISO 8601 with the zone. Lines that
repeat are counted (`repeated.py`). The application's configuration of `logging` applies.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import datetime
from typing import Any, Final, TextIO

from msgspec import Struct

from barnabas.core.telemetry.repeated import RepeatedLines

AUDIT_LOGGER = "kafka.authorizer.logger"
"""Kafka's name of the logger of authorization decisions."""
ROOT: Final = "barnabas"
"""The logger above all others of Barnabas."""
TRACE: Final = 5
"""Kafka's level below DEBUG."""
LINES: Final[dict[str, int]] = {"WARNING": 0, "ERROR": 0}
"""The lines since the process started, by level; also those that were counted and not written."""
_PLAIN = re.compile(r"[^\s\"=]+\Z")


class StructuredLogger:
    """A named logger. The keyword arguments of its methods are the named values of the entry."""

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: Any) -> None:
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._emit(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """As `error`, with the traceback of the exception being handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error(event, exc_info=True, extra={"fields": fields})

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def get_logger(name: str) -> StructuredLogger:
    """The logger of a package, for example `get_logger("barnabas.protocol.transport")`."""
    return StructuredLogger(logging.getLogger(name))


def iso_time(record: logging.LogRecord) -> str:
    """The local time of a line with its zone, to the millisecond: 2026-01-31T08:15:00.123+01:00."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class TextFormatter(logging.Formatter):
    """Formats an entry as a line of text. An example without its time:

    `WARNING barnabas.protocol.transport bad frame peer=1.2.3.4:5 reason="..."`
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return iso_time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        line = super().formatMessage(record)
        fields: dict[str, Any] = getattr(record, "fields", {})
        return line + "".join(f" {key}={_text(value)}" for key, value in fields.items())


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, event, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "ts": iso_time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


class CountingHandler(logging.Handler):
    """Passes lines to another handler, except those that repeat: these are counted. Lines below INFO and lines of the
    audit log are always written, because somebody has asked for all of them."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self._target = target
        self._repeated = RepeatedLines()

    def emit(self, record: logging.LogRecord) -> None:
        LINES[record.levelname] = LINES.get(record.levelname, 0) + 1
        self._write_counts(record.created)
        always = record.levelno < logging.INFO or record.name == AUDIT_LOGGER
        if always or self._repeated.on_line(record.created, (record.name, record.levelno, record.msg)):
            self._target.handle(record)

    def close(self) -> None:
        self._write_counts(0.0, everything=True)
        self._target.close()
        super().close()

    def _write_counts(self, now: float, *, everything: bool = False) -> None:
        for counted in self._repeated.ended(now, everything=everything):
            assert isinstance(counted.event, tuple)
            name, level, event = counted.event
            record = logging.LogRecord(name, level, "", 0, event, (), None)
            fields: dict[str, Any] = {"repeated": counted.lines}
            if not everything:
                fields["seconds"] = counted.seconds
            record.fields = fields
            self._target.handle(record)


class LogFile(Struct, frozen=True):
    """A file for the log. When it has `bytes_max` bytes it is renamed to NAME.1, and so on up to NAME.`kept`."""

    path: str
    bytes_max: int = 100 * 1024 * 1024
    kept: int = 10


def configure_logging(
    level: str = "INFO", *, as_json: bool = False, stream: TextIO | None = None, file: LogFile | None = None
) -> None:
    """Write the log of Barnabas to `file`, or to `stream` (default: stderr). Raises OSError if the file cannot be
    opened.

    Only the processes of Barnabas call this. An application that uses Barnabas as a library configures `logging`.
    """
    logging.addLevelName(TRACE, "TRACE")
    if file is None:
        target: logging.Handler = logging.StreamHandler(stream or sys.stderr)
    else:
        from logging.handlers import RotatingFileHandler  # takes milliseconds to import

        target = RotatingFileHandler(file.path, maxBytes=file.bytes_max, backupCount=file.kept, encoding="utf-8")
    target.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler = CountingHandler(target)
    for name in (ROOT, AUDIT_LOGGER):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())


def _text(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.match(text) else json.dumps(text, ensure_ascii=False)
