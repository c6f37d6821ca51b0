"""Shell: file descriptors: the limit of this process, its division between files and connections, and a reserve.

limit = own use (event loop, locks, outgoing connections, files that are open for a moment)
      + reserve (held open without use; given up one by one when a file cannot be opened)
      + segments (`OpenSegments`)
      + accepted connections (`ConnectionQuotas`)
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Final

from msgspec import Struct

from barnabas.core.telemetry import get_logger

log = get_logger("barnabas.server.storage")

_WANTED_MAX: Final = 1 << 20
"""A hard limit may be "unlimited". More than this is not needed."""
_FALLBACK: Final = 10_240
"""macOS reports an unlimited hard limit, and rejects a soft limit above OPEN_MAX, which is this."""
_RESERVE: Final = 16
_OWN: Final = 48
_SEGMENTS_MAX: Final = 8192
SHORTAGE: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""The errors of `open` without a free descriptor: in this process, and in the host."""


class DescriptorShares(Struct, frozen=True):
    """How the descriptors of the process are divided."""

    limit: int
    segments: int
    """The number of segments that may have an open file at the same time."""
    connections: int
    """The number of connections that may be accepted at the same time."""
    reserve: int
    highest: int
    """A connection whose descriptor has this number or a larger one is closed at once. The kernel gives out the lowest
    free number, so such a number proves that something else has used more descriptors than was planned."""


def divide_descriptors(limit: int) -> DescriptorShares:
    """Divide `limit` descriptors. Segments get half of what the process does not need for itself, at most 8192."""
    own = min(_OWN + _RESERVE, limit // 2)
    segments = max(min((limit - own) // 2, _SEGMENTS_MAX), 8)
    connections = max(limit - own - segments, 8)
    reserve = min(_RESERVE, own // 4)
    return DescriptorShares(limit, segments, connections, reserve, limit - reserve - reserve // 2)


def descriptor_limit() -> int:
    """The soft limit of open files of this process."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED_MAX if soft == resource.RLIM_INFINITY else min(soft, _WANTED_MAX)


def raise_descriptor_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard limit. Returns the soft limit before and after."""
    import resource

    before = descriptor_limit()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    for soft in (wanted, min(wanted, _FALLBACK)):
        if soft > before:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                break
    return before, descriptor_limit()


def open_descriptors() -> int:
    """The number of open descriptors of this process; -1 if the operating system does not list them."""
    with contextlib.suppress(OSError):
        # Linux 6.2 and later say it without a listing, which takes a microsecond for each descriptor.
        known = os.stat("/proc/self/fd").st_size  # noqa: PTH116 - pathlib takes milliseconds of every start
        if known:
            return known
    for folder in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(folder)) - 1  # without the descriptor of the listing # noqa: PTH208
    return -1


class DescriptorReserve:
    """Descriptors that are kept open without use. An `open` that fails gets one of them. Safe in any thread."""

    def __init__(self) -> None:
        self._kept: list[int] = []
        self._wishes: list[int] = []
        self._wanted = 0
        self.used = 0
        """How many times a descriptor was given up. For metrics."""
        self.exhausted = 0
        """How many times no descriptor was left to give up. For metrics."""

    def hold(self, count: int) -> None:
        """Keep at least `count` descriptors until `release(count)`. Several nodes of a process share the reserve."""
        self._wishes.append(count)
        self._wanted = max(self._wishes)
        self.refill()

    def give_up(self) -> bool:
        """Close one of the kept descriptors. Returns False if there is none."""
        try:
            os.close(self._kept.pop())
        except IndexError:
            self.exhausted += 1
            self._warn()
            return False
        self.used += 1
        self._warn()
        return True

    def _warn(self) -> None:
        """Log the first time, the second, the fourth, the eighth and so on."""
        times = self.used + self.exhausted
        if times & (times - 1) == 0:
            log.warning(
                "file descriptors are running out; raise the limit of open files (ulimit -n)",
                limit=descriptor_limit(),
                reserve_left=len(self._kept),
                taken_from_reserve=self.used,
                failed=self.exhausted,
            )

    @property
    def short(self) -> bool:
        """Whether descriptors were given up, and not all could be replaced since."""
        return len(self._kept) < self._wanted

    def refill(self) -> None:
        """Open descriptors until the wanted number is kept, as far as there are any."""
        while self.short:
            try:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                return

    def release(self, count: int) -> None:
        """Undo one `hold(count)`, and close the descriptors that no other holder asked for."""
        self._wishes.remove(count)
        self._wanted = max(self._wishes, default=0)
        while len(self._kept) > self._wanted:
            os.close(self._kept.pop())


RESERVE: Final = DescriptorReserve()
"""The reserve of this process; empty unless a node runs."""
