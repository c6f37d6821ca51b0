"""Shell: notices when a file of a key store or trust store has changed, so that its new content is used without a
restart."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from barnabas.protocol.security.config import TlsConfig

CHECK_EVERY_S: Final = 1.0
"""The files are looked at when a connection is opened or accepted, at most this often."""


class StoreFiles:
    """The files of one set of TLS settings. `now` gives a monotonic time in seconds."""

    def __init__(self, config: TlsConfig, now: Callable[[], float]) -> None:
        paths = (config.ssl_certificate_location, config.ssl_key_location, config.ssl_truststore_location)
        self._paths = tuple(dict.fromkeys(path for path in paths if path))
        self._now = now
        self._checked_at = now()
        self._state = self._read_state()

    def have_changed(self) -> bool:
        """Whether a file has changed since the last call that returned True; content that cannot be used is therefore
        reported once."""
        now = self._now()
        if now - self._checked_at < CHECK_EVERY_S:
            return False
        self._checked_at = now
        state = self._read_state()
        if state == self._state:
            return False
        self._state = state
        return True

    def _read_state(self) -> tuple[tuple[int, int], ...]:
        """The time of the last change and the size of each file."""
        found = []
        for path in self._paths:
            try:
                status = os.stat(path)  # noqa: PTH116 - pathlib costs 0.6 MB
            except OSError:
                found.append((-1, -1))
            else:
                found.append((status.st_mtime_ns, status.st_size))
        return tuple(found)
