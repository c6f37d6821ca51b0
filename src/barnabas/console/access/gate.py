"""Machine: decides whether a request may do what it asks for. Time and randomness are arguments.

Three things are checked for every request: its user, the role that the page or the change needs, and for changes the
CSRF token and read-only mode. `protocol/transport/http/doors.py` has checked before that no other web site has sent it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.console.access.sessions import LoginSession, Signer
from barnabas.console.access.users import Role, User
from barnabas.console.errors import NotAllowedError

CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
SESSIONS_OF_USER_MAX: Final = 50
"""The sessions of one user; a further login ends the oldest one."""


@dataclass(frozen=True, slots=True)
class Visit:
    """The user of a request. `user` is None before the login. `new_cookie` is set if the browser has no session."""

    user: User | None
    session: LoginSession
    csrf_token: str
    new_cookie: str | None = None
    is_basic: bool = False
    """Whether the request carries its own password (HTTP Basic), and not a cookie."""


class Gate:
    """`users` returns the present users; it is None without a login."""

    def __init__(self, signer: Signer, users: Callable[[], Mapping[str, User]] | None, *, is_read_only: bool) -> None:
        self.signer = signer
        self.is_read_only = is_read_only
        self._users = users
        self._sessions: dict[str, dict[str, int]] = {}
        """The sessions of each user that has logged in, by their ids, with their ends."""

    @property
    def has_login(self) -> bool:
        return self._users is not None

    def log_in(self, user: User, session_id: str, now_ms: int) -> str:
        """Begin a session of the user, with this random id. Returns its cookie."""
        session, cookie = self.signer.new_session(session_id, user, now_ms)
        mine = self._sessions.setdefault(user.name, {})
        for old in [known for known, expires_ms in mine.items() if expires_ms <= now_ms]:
            del mine[old]
        if len(mine) >= SESSIONS_OF_USER_MAX:
            del mine[next(iter(mine))]
        mine[session.id] = session.expires_ms
        return cookie

    def log_out(self, session: LoginSession) -> None:
        """End the session: its cookie is worth nothing any more."""
        self._sessions.get(session.user, {}).pop(session.id, None)

    def visit(self, cookie: str | None, now_ms: int, new_id: str) -> Visit:
        """The session and user of a request's cookie. `new_id` is random, for a browser without a session."""
        session, new_cookie = self.signer.session(cookie, now_ms), None
        if session is None:
            session, new_cookie = self.signer.new_session(new_id, None, now_ms)
        return Visit(self._user(session), session, self.signer.csrf_token(session), new_cookie)

    def _user(self, session: LoginSession) -> User | None:
        if self._users is None:
            return User("", Role.VIEWER if self.is_read_only else Role.ADMIN)
        user = self._users().get(session.user)
        if session.id not in self._sessions.get(session.user, {}):
            return None  # not logged in, or logged out
        if user is None or self.signer.password_mark(user) != session.password_mark:
            return None  # the user was removed, or has another password
        return user

    def user(self, name: str) -> User | None:
        return None if self._users is None else self._users().get(name)

    def check_change(self, visit: Visit, role: Role, token: str, *, is_check: bool = False) -> User:
        """The user, if the user may make a change that needs this role. Raises NotAllowedError."""
        if not visit.is_basic and not self.signer.is_csrf_token(visit.session, token):
            raise NotAllowedError("The form has expired: load the page again, and repeat the change.")
        if visit.user is None:
            raise NotAllowedError("You are not logged in any more: log in, and repeat the change.")
        if self.is_read_only and not is_check:
            raise NotAllowedError("This console is read-only.")
        if visit.user.role < role:
            needed = role.name.lower()
            raise NotAllowedError(f"This change needs the role {needed}; you are {visit.user.role.name.lower()}.")
        return visit.user
