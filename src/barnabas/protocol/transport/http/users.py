"""Shell: the users of an HTTP server in a file, which is read again when it has changed.

    users = UsersFile("/etc/barnabas/users", parse_users)
    await users.is_right("alice", "secret")

The format of the file is that of the server: `parse` reads it. Passwords are written as they are, or as hashes
(`protocol/security/password_hash.py`), which are checked outside of the event loop.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.password_hash import check_hash, check_password, hash_password, is_hash

log = get_logger("barnabas.protocol.transport.http")

_NICENESS: Final = 10


class FileUser(Protocol):
    """A user in a file."""

    @property
    def secret(self) -> str:
        """The password, or its hash."""
        ...


UserT = TypeVar("UserT", bound=FileUser)


class UsersFile(Generic[UserT]):
    """The `HttpUsers` of a file. A file that became invalid keeps its last valid content in force, with a warning.

    `parse` returns the users in a text by their names; its second argument is the path, for errors. `may_use` says
    which of them may use the server.
    """

    def __init__(
        self,
        path: str | Path,
        parse: Callable[[str, str], Mapping[str, UserT]],
        may_use: Callable[[UserT], bool] = lambda user: True,
    ) -> None:
        """Raises ConfigError, or what `parse` raises."""
        self._path = Path(path)
        self._parse = parse
        self._may_use = may_use
        self._checking = ThreadPoolExecutor(1, thread_name_prefix="barnabas-logins", initializer=_be_nice)
        self._decoy = ""
        self._stamp = self._read_stamp()
        self._users = self._read()

    def users(self) -> Mapping[str, UserT]:
        """The present users by their names."""
        stamp = self._read_stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._users = self._read()
            except BarnabasError as error:
                log.error("the changed file of users is refused; the previous users stay", reason=str(error))
        return self._users

    def _read_stamp(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return -1, -1
        return found.st_mtime_ns, found.st_size

    def _read(self) -> Mapping[str, UserT]:
        try:
            text = self._path.read_text(encoding="utf-8")
            mode = self._path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"The file of users {self._path} cannot be read: {reason}") from error
        users = self._parse(text, str(self._path))
        hashes = {name: user.secret for name, user in users.items() if is_hash(user.secret)}
        for name, secret in hashes.items():
            try:
                check_hash(secret)
            except ValueError as error:
                raise ConfigError(f"{self._path} has a user {name} without a password: {error}") from None
        if os.name == "posix" and mode & 0o077:
            log.warning("the file of users can be read by other users of this host: chmod 600", path=str(self._path))
        if hashes and not self._decoy:
            self._decoy = hash_password("no password", bytes(16))
        return users

    def secret(self, name: str) -> str | None:
        user = self.users().get(name)
        return None if user is None or not self._may_use(user) else user.secret

    async def is_right(self, name: str, password: str) -> bool:
        """Whether the password is right. An unknown name takes as long as a wrong password."""
        secret = self.secret(name)
        expected = self._decoy if secret is None else secret
        if is_hash(expected):
            loop = asyncio.get_running_loop()
            same = await loop.run_in_executor(self._checking, check_password, password, expected)
        else:
            same = hmac.compare_digest(password.encode(errors="surrogatepass"), expected.encode())
        return same and secret is not None


def _be_nice() -> None:
    """Let the event loop run before this thread, on Linux, where each thread has a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
