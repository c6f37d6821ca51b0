"""Shell: ports for servers that must know their port before they start.

The system gives ports above 32767 (on Linux by default) to outgoing connections. A port of that range that was free a
moment ago may be in use when the server starts, so that these functions choose lower ones, at random.
"""

from __future__ import annotations

import random
import socket
from typing import Final

_LOWEST: Final = 12_000
_END: Final = 32_000
_ATTEMPTS: Final = 1_000


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 on which no process listens at present. Raises RuntimeError if too few are found."""
    candidates = random.sample(range(_LOWEST, _END), _ATTEMPTS)
    ports = [port for port, _ in zip(filter(is_free, candidates), range(count), strict=False)]
    if len(ports) < count:
        raise RuntimeError(f"{count} ports are wanted; of {_ATTEMPTS} ports below {_END} only {len(ports)} are free")
    return ports


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens at present."""
    return free_ports(1)[0]


def free_range(count: int) -> int:
    """The first of `count` consecutive ports of 127.0.0.1 on which no process listens at present."""
    for first in random.sample(range(_LOWEST, _END - count), _ATTEMPTS):
        if all(map(is_free, range(first, first + count))):
            return first
    raise RuntimeError(f"no {count} consecutive ports below {_END} are free; choose a port")


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
