"""Codec: sessions in signed cookies, and the CSRF tokens that belong to them.

A cookie's value is `PAYLOAD.SIGNATURE`: base64 of JSON, and its HMAC-SHA-256. A session ends when it expires, when its
user logs out, is removed or gets another password (`gate.py`), or when the console restarts with another secret.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.console.access.users import User

LIFETIME_MS: Final = 12 * 3_600_000
_COOKIE_CHARACTERS_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class LoginSession:
    """The content of a session's cookie. `user` is empty before the login, and without a login."""

    id: str
    user: str
    expires_ms: int
    password_mark: str = ""
    """Differs after the user's password was changed."""


class Signer:
    """Signs and verifies values with one secret. `purpose` keeps a value of one kind from being used as another."""

    def __init__(self, secret: bytes) -> None:
        assert len(secret) >= 32
        self._secret = secret

    def digest(self, purpose: str, text: str) -> str:
        return hmac.new(self._secret, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    def sign(self, purpose: str, value: Mapping[str, Any]) -> str:
        payload = base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")
        return f"{payload}.{self.digest(purpose, payload)}"

    def verified(self, purpose: str, text: str | None) -> dict[str, Any] | None:
        """The signed value; None if the text was not signed with this secret for this purpose."""
        if not text or len(text) > _COOKIE_CHARACTERS_MAX or not text.isascii():
            return None
        payload, _, signature = text.rpartition(".")
        if not hmac.compare_digest(signature, self.digest(purpose, payload)):
            return None
        value: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return value

    # -- sessions

    def new_session(self, session_id: str, user: User | None, now_ms: int) -> tuple[LoginSession, str]:
        """A session and its cookie. `session_id` is random."""
        name, mark = ("", "") if user is None else (user.name, self.password_mark(user))
        session = LoginSession(session_id, name, now_ms + LIFETIME_MS, mark)
        value = {"id": session.id, "user": name, "expires": session.expires_ms, "mark": mark}
        return session, self.sign("session", value)

    def session(self, cookie: str | None, now_ms: int) -> LoginSession | None:
        """The session of a cookie; None if it is missing, not ours, or expired."""
        value = self.verified("session", cookie)
        if value is None or value["expires"] <= now_ms:
            return None
        return LoginSession(value["id"], value["user"], value["expires"], value["mark"])

    def password_mark(self, user: User) -> str:
        return self.digest("password", user.password_hash)[:16]

    def csrf_token(self, session: LoginSession) -> str:
        """The token that every form of this session carries."""
        return self.digest("csrf", session.id)

    def is_csrf_token(self, session: LoginSession, token: str) -> bool:
        return token.isascii() and hmac.compare_digest(token, self.csrf_token(session))
