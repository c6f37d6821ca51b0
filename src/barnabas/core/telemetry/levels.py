"""Shell: the levels of loggers, changed while a process runs, with Kafka's names of levels.

Kafka calls the logger above all others `root`. Here it stands for `barnabas`, the logger above all of Barnabas; what
other libraries log is not touched. A change is not stored: it ends with the process.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry.log import AUDIT_LOGGER, ROOT, TRACE

ROOT_NAME: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's levels, and the numbers of Python's."""


def describe_levels() -> dict[str, str]:
    """The level in effect of each logger, by its name, sorted; `root` first."""
    found = {name: _level_name(logging.getLogger(name)) for name in _names()}
    return {ROOT_NAME: _level_name(logging.getLogger(ROOT)), **found}


def check_level(name: str, level: str) -> None:
    """Raises KafkaError INVALID_CONFIG if there is no such logger or level."""
    if level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level}: the levels are {', '.join(LEVELS)}.",
        )
    check_logger(name)


def check_logger(name: str) -> None:
    """Raises KafkaError INVALID_CONFIG if there is no logger of this name."""
    if name != ROOT_NAME and name not in _names():
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist.")


def set_level(name: str, level: str) -> None:
    """Change the level of a logger, and of those below it that have no level of their own."""
    logging.getLogger(ROOT if name == ROOT_NAME else name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Remove the level of a logger, which then has the level of the logger above it."""
    if name == AUDIT_LOGGER:
        logging.getLogger(name).setLevel(logging.getLogger(ROOT).getEffectiveLevel())
    else:
        logging.getLogger(name).setLevel(logging.NOTSET)


def _names() -> list[str]:
    known = logging.Logger.manager.loggerDict
    return sorted(
        name
        for name, logger in known.items()
        if isinstance(logger, logging.Logger) and (name.startswith(f"{ROOT}.") or name == AUDIT_LOGGER)
    )


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if level <= number), "FATAL")
