"""Shell: the structured log, a thin layer on the standard library's `logging`.

A log entry is a sentence and named values: `log.info("partition opened", topic="t", partition=0, offset=42)`. The text
form appends `key=value`; the JSON form writes one object per line. The application's configuration of `logging`
applies.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from typing import Any, TextIO

AUDIT_LOGGER = "kafka.authorizer.logger"
"""Kafka's name of the logger of authorization decisions."""
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


class TextFormatter(logging.Formatter):
    """Formats an entry as a line of text. An example without its time:

    `WARNING barnabas.protocol.transport bad frame peer=1.2.3.4:5 reason="..."`
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        line = super().formatMessage(record)
        fields: dict[str, Any] = getattr(record, "fields", {})
        return line + "".join(f" {key}={_text(value)}" for key, value in fields.items())


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, event, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "ts": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            event["traceback"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


def configure_logging(level: str = "INFO", *, as_json: bool = False, stream: TextIO | None = None) -> None:
    """Write the log of Barnabas to `stream` (default: stderr).

    Only the processes of Barnabas call this. An application that uses Barnabas as a library configures `logging`.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    for name in ("barnabas", AUDIT_LOGGER):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())


def _text(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.match(text) else json.dumps(text, ensure_ascii=False)
