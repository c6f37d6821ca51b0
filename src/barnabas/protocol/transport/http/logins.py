"""Shell: the logins of one HTTP server: who is let in, by a name and a password.

    logins = Logins(users, now)
    await logins.accepts("alice", "secret", "10.0.0.1")

| A login | is |
|---|---|
| that was right within the last minute | let in at once, whatever happens at its address |
| from an address with many wrong passwords | refused, until the address has waited (`login_attempts.py`) |
| beside many others that are being checked | refused |

So guesses slow down their own address, and neither the user whose password is guessed nor the pages of others.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.core.addresses import address_group
from barnabas.core.errors import BarnabasError
from barnabas.protocol.security.login_attempts import LoginAttempts

REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 1_000
CHECKS_OF_ADDRESS_MAX: Final = 4
CHECKS_MAX: Final = 16
"""Passwords that are checked at the same time: a check of a hash takes 0.1 s and 32 MiB, one after the other."""
_CREDENTIALS_MAX: Final = 4096
"""The longest `Authorization` header that is read."""


class TooManyLoginsError(BarnabasError):
    """The login is not checked: too many are, or too many passwords of its address were wrong."""

    def __init__(self, message: str, wait_s: int) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class HttpUsers(Protocol):
    """The users of an HTTP server."""

    def secret(self, name: str) -> str | None:
        """A text that changes with the user's password; None for a user that is unknown or may not enter."""
        ...

    async def is_right(self, name: str, password: str) -> bool:
        """Whether this is the password of a user that may use the server. Raises BarnabasError if that cannot be found
        out."""
        ...


class Logins:
    """The logins of one server. `now` gives a monotonic time in seconds."""

    def __init__(self, users: HttpUsers, now: Callable[[], float]) -> None:
        self._users = users
        self._now = now
        self._attempts = LoginAttempts()
        self._checks: Counter[str] = Counter()
        self._running: dict[bytes, asyncio.Future[bool]] = {}
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, tuple[str, float]] = {}
        """Passwords that were right, by a digest: the secret that the user had, and until when they are remembered."""

    async def accepts(self, name: str, password: str, address: str) -> bool:
        """Whether the password is right. Raises TooManyLoginsError, or what the users raise."""
        digest = hmac.digest(self._key, f"{len(name)}:{name}:{password}".encode(errors="surrogatepass"), "sha256")
        secret, until = self._right.get(digest, (None, 0.0))
        if secret is not None and secret == self._users.secret(name) and self._now() < until:
            return True
        check = self._running.get(digest)  # clients that start together have the same user
        if check is None:
            address = address_group(address)
            self._admit(address)
            check = asyncio.ensure_future(self._check(name, password, address, digest))
            self._running[digest] = check
            check.add_done_callback(lambda _: self._running.pop(digest))
        return await asyncio.shield(check)

    def _admit(self, address: str) -> None:
        wait_ms = self._attempts.wait_ms(address, int(self._now() * 1000))
        if wait_ms:
            wait_s = -(-wait_ms // 1000)
            raise TooManyLoginsError(f"Too many failed logins: try again in {wait_s} s.", wait_s)
        if self._checks[address] >= CHECKS_OF_ADDRESS_MAX or self._checks.total() >= CHECKS_MAX:
            raise TooManyLoginsError("Too many logins at the same time: try again in a moment.", 1)
        self._checks[address] += 1

    async def _check(self, name: str, password: str, address: str, digest: bytes) -> bool:
        secret = self._users.secret(name)
        try:
            is_right = await self._users.is_right(name, password)
        finally:
            self._checks[address] -= 1
            if not self._checks[address]:
                del self._checks[address]
        if not is_right or secret is None:
            self._attempts.failed(address, int(self._now() * 1000))
            return False
        self._attempts.succeeded(address)
        if len(self._right) >= _REMEMBERED_MAX:
            self._right.clear()
        self._right[digest] = (secret, self._now() + REMEMBERED_S)
        return True


def decode_basic(authorization: str) -> tuple[str, str] | None:
    """The user and the password of an `Authorization` header; None if it has none."""
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_MAX:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None
