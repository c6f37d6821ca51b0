"""Shell: child processes that end when their parent ends, also when the parent is killed with SIGKILL.

Linux sends a child the signal that the child has asked for (prctl(2), PR_SET_PDEATHSIG) when the *thread* that started
the child ends. `start_child` therefore starts processes in one thread that lives as long as the parent process: a child
that a short-lived thread requests must not end with that thread. On other systems children survive their parent.

The child first runs a small Python program, which asks for the signal and then executes the command in its own place.
A `preexec_fn` would cost less, but it runs Python code in the forked process, where Python destroys the thread-local
objects of all other threads. The finalizers of such objects may act on what the parent and the child share: a finalizer
of py4j shuts down the socket by which a thread of Spark's driver is connected to its JVM.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1

# Arguments: the parent's process id, the number of the signal, the command. Python ignores SIGPIPE and SIGXFSZ from its
# start on. The program restores the default action of both signals for the command, as Popen does for its children.
_ASK_AND_BECOME: Final = f"""\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(sys.argv[2]))
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
os.execvp(sys.argv[3], sys.argv[3:])
"""


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

    None on systems other than Linux. Only for a process in which no library has threads with thread-local objects: the
    docstring of this module says why."""
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
    import shutil  # here, because a broker's start imports this module

    program, environment = command[0], options.get("env") or os.environ
    if os.sep in str(program):  # Popen looks for such a program from the child's working directory
        program = os.path.join(options.get("cwd") or "", program)  # noqa: PTH118 - a start imports no pathlib
    if _find_prctl() is None or shutil.which(program, path=environment.get("PATH")) is None:  # Popen raises its error
        return subprocess.Popen(command, **options)
    asking = [sys.executable, "-I", "-S", "-c", _ASK_AND_BECOME, str(os.getpid()), str(int(number)), *command]
    with _starter_lock:
        if _starter is None or _starter.pid != os.getpid():  # a fork copies the object, but not the thread
            _starter = _Starter()
        starter = _starter
    process = starter.start(asking, options)
    process.args = command
    return process


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
