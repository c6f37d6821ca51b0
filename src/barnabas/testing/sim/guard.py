"""Shell: prevents the thread of a simulation from opening real files, sockets, threads and processes.

An audit hook (PEP 578) sees every attempt of any library. Reading files is allowed in the directories of Python code
and of its compiled caches, because modules are imported on first use.
"""

from __future__ import annotations

import os
import signal
import site
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.sim.errors import LivenessError, RealWorldError

if TYPE_CHECKING:
    from barnabas.testing.sim.loop import SimLoop

_CALLBACK_S: Final = 5.0
"""CPU seconds after which a callback counts as endless; callbacks of the production code take milliseconds."""

_FORBIDDEN: Final = frozenset(
    {
        "socket.__new__",
        "socket.connect",
        "socket.bind",
        "socket.getaddrinfo",
        "socket.gethostbyname",
        "subprocess.Popen",
        "os.fork",
        "os.system",
        "os.remove",
        "os.rename",
        "os.mkdir",
        "os.rmdir",
        "os.truncate",
    }
)
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CODE: Final = tuple(
    sorted(
        {
            *(str(Path(path).resolve()) for path in sys.path if path),
            *site.getsitepackages(),
            sysconfig.get_path("stdlib"),
            str(Path(__file__).resolve().parents[3]),
            sys.prefix,
            sys.base_prefix,
        }
    )
)
_guarded: set[int] = set()
_installed = False


@contextmanager
def no_real_world() -> Iterator[None]:
    """While the block runs, real files, sockets, threads and processes raise RealWorldError in the calling thread."""
    global _installed
    if not _installed:
        sys.addaudithook(_hook)  # permanent: CPython cannot remove an audit hook
        _forbid_threads()
        _installed = True
    thread = threading.get_ident()
    _guarded.add(thread)
    try:
        yield
    finally:
        _guarded.discard(thread)


@contextmanager
def no_endless_callback(loop: SimLoop) -> Iterator[None]:
    """While the block runs, an endless callback of `loop` is interrupted, and the loop fails with LivenessError.

    This works in the main thread only, because it uses a signal. In other threads the test's own time-out applies.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = -1

    def on_tick(number: int, frame: FrameType | None) -> None:
        nonlocal before
        if loop.steps == before:
            loop.hung = "".join(traceback.format_stack(frame, 6))
            raise LivenessError(f"A callback has been running for {_CALLBACK_S:g} s of CPU time:\n{loop.hung}")
        before = loop.steps

    previous = signal.signal(signal.SIGVTALRM, on_tick)
    signal.setitimer(signal.ITIMER_VIRTUAL, _CALLBACK_S, _CALLBACK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def _forbid_threads() -> None:
    """Replaces `Thread.start`, because Python 3.11 has no audit event for the start of a thread."""
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if threading.get_ident() in _guarded:
            raise RealWorldError(f"Simulated code started a real thread: {self.name}.")
        real(self)

    threading.Thread.start = start  # type: ignore[method-assign]  # the guard replaces it on purpose


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _guarded or threading.get_ident() not in _guarded:
        return
    if event == "open":
        path, _, flags = args
        if not isinstance(path, (str, bytes)):
            return
        name = os.fsdecode(path)
        writes = isinstance(flags, int) and flags & _WRITING
        if name.startswith(_CODE) and (not writes or "__pycache__" in name):
            return
        raise RealWorldError(f"Simulated code opened the real file {name}: files go through storage.fs.FileSystem.")
    if event in _FORBIDDEN:
        if event in ("os.rename", "os.mkdir") and "__pycache__" in os.fsdecode(args[0]):
            return
        raise RealWorldError(f"Simulated code did something real: {event}{args!r:.200}.")
