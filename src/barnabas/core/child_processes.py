"""Shell: child processes that end when their parent ends, also when the parent is killed with SIGKILL.

Linux sends a child the signal that the child has asked for (prctl(2), PR_SET_PDEATHSIG) when the *thread* that started
the child ends. `start_child` therefore starts processes in one thread that lives as long as the parent process: a child
that a short-lived thread requests must not end with that thread. On other systems children survive their parent.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask Linux to send signal `number` to this process when the thread that started it ends. `parent` is the id of the
    parent process; if the parent has ended already, this process ends at once."""
    prctl = _find_prctl()
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(0)  # the parent ended before prctl was called


def death_signal(number: int = signal.SIGKILL) -> Callable[[], None] | None:
    """The `preexec_fn` of a child of this process: the child gets signal `number` when the calling thread ends.

    None on systems other than Linux."""
    prctl, parent = _find_prctl(), os.getpid()
    if prctl is None:
        return None

    def ask() -> None:  # runs between fork and exec, so it only calls what is loaded already
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:
            os._exit(1)

    return ask


def start_child(command: Sequence[str], number: int = signal.SIGKILL, **options: Any) -> subprocess.Popen[Any]:
    """Start a process as `subprocess.Popen(command, **options)` does. When this process ends in any way, the child gets
    signal `number`. Raises what Popen raises."""
    global _starter
    ask = death_signal(number)
    if ask is None:
        return subprocess.Popen(command, **options)
    with _starter_lock:
        if _starter is None or _starter.pid != os.getpid():  # a fork copies the object, but not the thread
            _starter = _Starter()
        starter = _starter
    return starter.start(command, {**options, "preexec_fn": ask})


class _Starter:
    """The thread that starts processes. It is a daemon, so it lives until the interpreter has ended."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Sequence[str], dict[str, Any], Future[subprocess.Popen[Any]]]] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._run, name="child processes", daemon=True).start()

    def start(self, command: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[Any]:
        done: Future[subprocess.Popen[Any]] = Future()
        self._jobs.put((command, options, done))
        return done.result()

    def _run(self) -> None:
        while True:
            command, options, done = self._jobs.get()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: a fork in a process with threads
                    done.set_result(subprocess.Popen(command, **options))
            except BaseException as error:  # noqa: BLE001 - `start` raises it in the thread that called
                done.set_exception(error)


_starter: _Starter | None = None
_starter_lock: Final = threading.Lock()


def _find_prctl() -> Callable[[int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    try:
        prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return prctl
