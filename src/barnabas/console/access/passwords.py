"""Shell: the users file, read again when it has changed, and the check of passwords outside of the event loop."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from barnabas.console.access.users import User, check_password, hash_password, parse_users
from barnabas.console.errors import ConsoleError, TooManyError
from barnabas.core.addresses import address_group
from barnabas.core.clock import Clock
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.login_attempts import LoginAttempts

log = get_logger("barnabas.console")

REMEMBERED_MS: Final = 60_000
"""A script sends its password with each request (HTTP Basic). It is checked anew after this time."""
_REMEMBERED_MAX: Final = 1_000
_PENDING_OF_ADDRESS_MAX: Final = 4
_PENDING_MAX: Final = 16
"""A check takes about 0.1 s and 32 MiB, one after the other."""
_NICENESS: Final = 10


class UsersFile:
    """The users of a file. A file that became invalid keeps its last valid content in force, with a warning."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._stamp: tuple[int, int] = (0, 0)
        self._users: Mapping[str, User] = {}
        self._attempts = LoginAttempts()
        self._checking = ThreadPoolExecutor(1, thread_name_prefix="barnabas-logins", initializer=_be_nice)
        self._pending: Counter[str] = Counter()
        """The logins that are being checked, or wait for that, by address."""
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, tuple[str, int]] = {}
        """Passwords that were right, by a digest: the hash that they had, and until when they are remembered."""
        self._unknown_hash = hash_password("no password", bytes(16))  # compared for unknown names
        self._users = self._read()

    def users(self) -> Mapping[str, User]:
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_size) != self._stamp:
                self._users = self._read()
        except (OSError, ConsoleError) as error:
            log.warning("the users file cannot be read; its last content stays in force", reason=str(error))
        return self._users

    def _read(self) -> Mapping[str, User]:
        try:
            found = self._path.stat()
            text = self._path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConsoleError(f"The users file {self._path} cannot be read: {error.strerror or error}") from error
        if os.name == "posix" and found.st_mode & 0o077:
            log.warning("the users file can be read by other users of this host: chmod 600", path=str(self._path))
        self._stamp = (found.st_mtime_ns, found.st_size)
        return parse_users(text, str(self._path))

    async def login(self, name: str, password: str, address: str) -> User | None:
        """The user, if the password is right. Raises TooManyError after many failures of the address, or while too many
        passwords are being checked. An unknown name takes as long as a wrong password.
        """
        user = self.users().get(name)
        digest = hmac.digest(self._key, f"{len(name)}:{name}:{password}".encode(), "sha256")
        now_ms = self._clock.now_ms()
        known_hash, until_ms = self._right.get(digest, ("", 0))
        if user is not None and known_hash == user.password_hash and now_ms < until_ms:
            return user
        address = address_group(address)
        wait_ms = self._attempts.wait_ms(address, now_ms)
        if wait_ms:
            raise TooManyError(f"Too many failed logins: try again in {-(-wait_ms // 1000)} s.")
        if self._pending[address] >= _PENDING_OF_ADDRESS_MAX or self._pending.total() >= _PENDING_MAX:
            raise TooManyError("Too many logins at the same time: try again in a moment.")
        password_hash = self._unknown_hash if user is None else user.password_hash
        self._pending[address] += 1
        try:
            loop = asyncio.get_running_loop()
            right = await loop.run_in_executor(self._checking, check_password, password, password_hash)
        finally:
            self._pending[address] -= 1
            if not self._pending[address]:
                del self._pending[address]
        if user is None or not right:
            self._attempts.failed(address, now_ms)
            return None
        self._attempts.succeeded(address)
        if len(self._right) >= _REMEMBERED_MAX:
            self._right.clear()
        self._right[digest] = (user.password_hash, now_ms + REMEMBERED_MS)
        return user


def _be_nice() -> None:
    """Let the pages run before this thread, on Linux, where each thread has a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
