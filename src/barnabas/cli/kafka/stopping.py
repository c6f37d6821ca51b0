"""Shell: SIGTERM and Ctrl-C end a tool in order: it closes its clients, prints its last lines, and exits with the code
that a shell gives to such an end (143, 130), as the JVM does.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a signal has ended the block of `until_signal`."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def exit(self) -> None:
        """Exit with the signal's code, if there was a signal."""
        if self.signal is not None:
            raise SystemExit(128 + self.signal)


@contextmanager
def until_signal() -> Iterator[Stop]:
    """A block of the running task that a signal leaves early. A second signal ends the process at once."""
    stop, loop, task = Stop(), asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def on_signal(number: signal.Signals) -> None:
        stop.signal = number
        _remove()
        task.cancel()

    def _remove() -> None:
        for number in _SIGNALS:
            with suppress(ValueError, RuntimeError, NotImplementedError):
                loop.remove_signal_handler(number)

    for number in _SIGNALS:
        # signal handlers work in the main thread on Unix only
        with suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        task.uncancel()  # closing must not be interrupted
    finally:
        _remove()
