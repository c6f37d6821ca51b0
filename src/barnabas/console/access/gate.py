"""Machine: decides whether a request may do what it asks for. Time and randomness are arguments.

Four things are checked for every request: its Host header (a console without a login answers to loopback names only, so
that no foreign web page can reach it by rebinding its own name), its user, the role that the page or the change needs,
and for changes the CSRF token and read-only mode.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from barnabas.console.access.sessions import Session, Signer
from barnabas.console.access.users import Role, User
from barnabas.console.errors import NotAllowedError

CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"


@dataclass(frozen=True, slots=True)
class Visit:
    """The user of a request. `user` is None before the login. `new_cookie` is set if the browser has no session."""

    user: User | None
    session: Session
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

    @property
    def has_login(self) -> bool:
        return self._users is not None

    def check_host(self, host: str) -> None:
        """Raises NotAllowedError for a Host header that is no loopback name, if there is no login."""
        if not self.has_login and not is_loopback(host_name(host)):
            raise NotAllowedError(
                f"This console has no login, so it answers to localhost and 127.0.0.1 only, not to {host[:100]!r}."
            )

    def check_site(self, site: str, mode: str, *, is_change: bool = False) -> None:
        """Raises NotAllowedError if another web site has sent the request from its own page. `site` and `mode` are the
        headers Sec-Fetch-Site and Sec-Fetch-Mode, which browsers send. A link that a person follows is allowed, a form
        of another site is not: the browser may add a password (HTTP Basic) that it remembers.
        """
        if site in ("cross-site", "same-site") and (is_change or mode != "navigate"):
            raise NotAllowedError("This console answers to its own pages only.")

    def visit(self, cookie: str | None, now_ms: int, new_id: str) -> Visit:
        """The session and user of a request's cookie. `new_id` is random, for a browser without a session."""
        session, new_cookie = self.signer.session(cookie, now_ms), None
        if session is None:
            session, new_cookie = self.signer.new_session(new_id, None, now_ms)
        return Visit(self._user(session), session, self.signer.csrf_token(session), new_cookie)

    def _user(self, session: Session) -> User | None:
        if self._users is None:
            return User("", Role.VIEWER if self.is_read_only else Role.ADMIN)
        user = self._users().get(session.user)
        if user is None or self.signer.password_mark(user) != session.password_mark:
            return None  # not logged in; or the user was removed, or has another password
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


def basic_credentials(header: str | None) -> tuple[str, str] | None:
    """(name, password) of an Authorization header with HTTP Basic; None for any other."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        return None
    return (name, password) if colon else None


def host_name(host: str) -> str:
    """The name or address of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address or name."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
