"""What all tests share: the `--rewrite` flag of the golden tests, the order of files, Hypothesis's settings,
SIGINT, the garbage collector, and loggers that are afterwards as they were.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.scheduling import LongFilesFirst, rank

# A loaded machine is slow, not wrong. CI looks at the same examples each time; at home and in `make soak` they are new.
settings.register_profile(
    "barnabas", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("barnabas")

# A shell without job control starts a command that ends in `&` with SIGINT ignored, and every child process inherits
# that. Then `cluster drain` and `serve` do not end on the SIGINT that a test sends (as POSIX wants it). So the tests'
# processes get the default handling of SIGINT back, however pytest was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="golden tests: write what happens now as what is expected")
    parser.addoption("--previous-version", metavar="REF", help="the commit from which the test of upgrades comes")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays until the end, so that the garbage collector need not look at it.

    A worker collects a million objects: with the collector it takes nine seconds of CPU, without it five, and later
    each full collection, of a test or of its own accord, looks at the objects of tests only.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # in a worker of `pytest -n`
        items.sort(key=lambda item: rank(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LongFilesFirst | None:
    return LongFilesFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def loggers_as_before() -> Iterator[None]:
    """Commands that run in pytest's process, and tests of logging, configure the loggers of the whole process."""
    loggers = [logging.getLogger(name) for name in ("barnabas", "kafka.authorizer.logger")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        if logger.level != level:
            logger.setLevel(level)
