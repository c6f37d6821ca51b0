"""Shell: the levels of this process's loggers, with the level names of Connect's API."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from barnabas.spark.connectors.connect.cluster.herder import checked_level
from barnabas.spark.connectors.connect.cluster.values import LOG_LEVELS, ConnectRequestError

ROOT: Final = "root"
_TOP: Final = "barnabas"
_OFF_LEVEL: Final = logging.CRITICAL + 10
_NAMES: Final = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}


class WorkerLoggers:
    """The loggers below `barnabas`; the name `root` is that logger itself."""

    def __init__(self) -> None:
        self._modified_ms: dict[str, int] = {}
        self._applied: dict[str, str] = {}

    def all(self) -> dict[str, dict[str, Any]]:
        """The loggers that have a level of their own, and the root."""
        known = logging.Logger.manager.loggerDict
        names = [name for name in sorted(known) if name.startswith(f"{_TOP}.") and _own_level(name)]
        return {name: self._document(name) for name in (ROOT, *names)}

    def one(self, name: str) -> dict[str, Any]:
        """The level of a logger. 404 for a name that no module logs to."""
        if name != ROOT and name not in logging.Logger.manager.loggerDict:
            raise ConnectRequestError(404, f"Logger {name} not found.")
        return self._document(name)

    def set(self, name: str, level: object) -> list[str]:
        """Set a level. Returns the names of the logger and of those below it, which change with it."""
        text = checked_level(level)
        number = _OFF_LEVEL if text == "OFF" else logging.getLevelName(LOG_LEVELS[text])
        logger_name = _logger_name(name)
        logging.getLogger(logger_name).setLevel(number)
        below = [one for one in sorted(logging.Logger.manager.loggerDict) if one.startswith(f"{logger_name}.")]
        for one in below:
            if _own_level(one):
                logging.getLogger(one).setLevel(number)
        changed = [name, *below]
        self._modified_ms.update(dict.fromkeys(changed, time.time_ns() // 1_000_000))
        return sorted(changed)

    def follow(self, levels: Mapping[str, str]) -> None:
        """Set the levels that the config topic has for all workers, if they have changed."""
        for name, level in sorted(levels.items()):
            if self._applied.get(name) != level and level.upper() in LOG_LEVELS:
                self._applied[name] = level
                self.set(name, level)

    def _document(self, name: str) -> dict[str, Any]:
        number = logging.getLogger(_logger_name(name)).getEffectiveLevel()
        level = "OFF" if number >= _OFF_LEVEL else _NAMES.get(number, "FATAL" if number > logging.ERROR else "TRACE")
        return {"level": level, "last_modified": self._modified_ms.get(name)}


def _logger_name(name: str) -> str:
    return _TOP if name == ROOT else name


def _own_level(name: str) -> bool:
    return logging.getLogger(name).level != logging.NOTSET
