"""Shell: the users file, read again when it has changed, and the check of passwords outside of the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from barnabas.console.access.users import User, check_password, hash_password, parse_users
from barnabas.console.errors import ConsoleError, TooManyError
from barnabas.core.clock import Clock
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.login_attempts import LoginAttempts

log = get_logger("barnabas.console")


class UsersFile:
    """The users of a file. A file that became invalid keeps its last valid content in force, with a warning."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._stamp: tuple[int, int] = (0, 0)
        self._users: Mapping[str, User] = {}
        self._attempts = LoginAttempts()
        self._checking = asyncio.Semaphore(2)  # a check takes 32 MiB
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

    async def login(self, name: str, password: str) -> User | None:
        """The user, if the password is right. Raises TooManyError after many failures. An unknown name takes as long
        as a wrong password.
        """
        async with self._checking:
            now_ms = self._clock.now_ms()
            wait_ms = self._attempts.wait_ms(name, now_ms)
            if wait_ms:
                raise TooManyError(f"Too many failed logins: try again in {-(-wait_ms // 1000)} s.")
            user = self.users().get(name)
            password_hash = self._unknown_hash if user is None else user.password_hash
            right = await asyncio.to_thread(check_password, password, password_hash)
        if user is None or not right:
            self._attempts.failed(name, now_ms)
            return None
        self._attempts.succeeded(name)
        return user
